//! The headline of a page: what goes wrong, in one sentence for somebody who knows no rule and no name of the program.
//!
//! Not here: what the rules demand (`specs/rules`), and which operations are meant, which the next sentence says.

use rankcheck_model::{Class, Rank, Rule, ranks_in_words};

/// What ranks do wrong where a rule is broken.
pub(super) fn mistake(rule: Rule) -> &'static str {
    match rule {
        Rule::Mutex1 => "Threads wait for each other, as one holds a lock that the other wants",
        Rule::Mutex2 => "A thread unlocks a mutex that another thread locked",
        Rule::Comm1 => "Not every rank makes the communicator, or ranks make several in different orders",
        Rule::Comm2 => "A rank uses a communicator that it is not in, or that is gone",
        Rule::Comm3 => "Ranks set up one communicator by different steps",
        Rule::Comm4 => "Two threads of a rank call one communicator at the same time",
        Rule::Comm5 => "A call on a communicator has an invalid argument",
        Rule::Comm6 => "Not every rank destroys a communicator, or ranks destroy several in different orders",
        Rule::Win1 => {
            "Not every rank registers memory with the communicator, or ranks do so in different orders"
        }
        Rule::Win2 => {
            "Ranks registered different memory under one number, so one collective works on different windows"
        }
        Rule::Win3 => "Ranks register memory of different sizes together",
        Rule::Win4 => "The buffers of one collective lie at different offsets of their windows",
        Rule::Win5 => "A rank registers memory that cannot be registered",
        Rule::Win6 => "Ranks register memory together and with different flags",
        Rule::Win7 => "A collective has a registered buffer on some ranks and an ordinary one on others",
        Rule::Win8 => "A collective that is declared symmetric cannot take the symmetric kernel",
        Rule::Win9 => "A window is deregistered while it is in use, or twice",
        Rule::Win10 => "An operation reaches beyond the end of its window",
        Rule::Win11 => "Memory is freed while it is still registered",
        Rule::Win12 => "A collective runs on a registration whose memory was replaced",
        Rule::P2p3 => "Ranks that use a pair for the first time wait for one another in a circle",
        Rule::Host1 => "Not every rank comes to a barrier or an agreement of hosts",
        Rule::Exchange1 => {
            "Not every rank comes to an exchange, or ranks come to several in different orders"
        }
        Rule::Exchange2 => "Ranks exchange different things with one another",
        Rule::Exchange3 => "Ranks exchange memory of different sizes",
        Rule::Exchange4 => "The buffers of one exchange lie at different offsets of their memory",
        Rule::Store1 => "A rank waits for a key of the store that nobody sets",
        Rule::Store2 => "Nothing orders a read of a key of the store and a write of it",
        Rule::Flag1 => "A rank waits for a value of a flag that is not there when it looks",
        Rule::P2p1 => "A transfer names a peer that cannot take part in it",
        Rule::P2p2 => "A send has no receive, or a receive has no send",
        Rule::P2p4 => "A send and its receive have different counts or types",
        Rule::P2p5 => "A transfer has a registered buffer at one end and an ordinary one at the other",
        Rule::P2p6 => "A transfer waits for another of its own group that may begin only after it",
        Rule::Coll1 => "Some rank does not launch a collective that the others wait in",
        Rule::Coll2 => "Ranks call different collectives where all have to call the same",
        Rule::Coll3 => "Ranks call one collective with different sizes, types, reductions or roots",
        Rule::Coll4 => "Ranks launch on several communicators in different orders",
        Rule::Overlap1 => "Launches that have to run at the same time cannot",
        Rule::Group1 => "A call in a group of calls is invalid",
        Rule::Group2 => "A group of calls is not ended, or is ended without a start",
        Rule::Group3 => "A group makes or ends a communicator and does not leave it alone otherwise",
        Rule::Graph1 => "A call is made while a graph is captured that a capture forbids",
        Rule::Graph2 => "A graph is replayed after memory that it captured was given away",
        Rule::Graph3 => "A graph is replayed after a window that it captured was deregistered",
        Rule::Graph4 => "A graph outlives a communicator that it captured",
        Rule::Graph5 => "A collective is captured into a graph on some ranks only",
        Rule::Graph6 => "A capture of a graph is begun, joined or ended wrongly",
        Rule::Graph7 => "Somebody waits for an event whose record was only captured",
        Rule::Mem1 => "Memory is freed while an operation still uses it",
        Rule::Mem2 => "Two accesses to the same memory race, as nothing orders them and one is a write",
        Rule::Mem3 => "Memory is freed twice",
        Rule::Mem4 => "An operation is given a buffer that is gone or too short",
        Rule::Mem5 => "A buffer holds other data than the program expects",
        Rule::Ipc1 => "Memory is shared by a handle that does not fit it, or opened by its own rank",
        Rule::Ipc2 => "A rank opens a handle of memory that is gone",
        Rule::Ipc3 => "Memory is freed while a peer still has it open",
        Rule::Ipc4 => "Memory of a peer is used while it is not open, or closed too often",
        Rule::List1 => "An index lies behind the end of a list",
    }
}

/// What follows in the model.
pub(super) fn follows(class: Class) -> &'static str {
    match class {
        Class::Finishes => "the program finishes all the same",
        Class::Slow => "it runs, and on a slower path",
        Class::SilentCorruption => "data is wrong, and no call reports it",
        Class::Error => "a call returns an error",
        Class::CudaError => "CUDA refuses all further work",
        Class::Dead => "a process dies",
        Class::GpuHang => "the GPUs never finish",
        Class::HostHang => "a host never returns from a call",
        Class::Undefined => "nobody specifies what follows",
    }
}

/// A mistake and what follows, as one sentence.
pub(super) fn headline(rule: Rule, follows: &str) -> String {
    format!("{}: {follows}.", mistake(rule))
}

/// The headline of a run that stands: for whom others wait, or who waits for one another.
pub(super) fn stands(root: Option<(u32, &[u32], &str)>, circle: &[u32]) -> String {
    let ranks = |ranks: &[u32]| ranks_in_words(ranks.iter().map(|rank| Rank(*rank)));
    match root {
        Some((root, [], gone)) => format!("Rank {root} {gone}."),
        Some((root, waiting, gone)) => {
            let waits = if waiting.len() == 1 { "waits" } else { "wait" };
            capital(&format!("{} {waits} for rank {root}, which {gone}.", ranks(waiting)))
        }
        None if circle.len() > 1 => capital(&format!("{} wait for one another in a circle.", ranks(circle))),
        None => "Ranks wait, and nothing will wake them.".to_owned(),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

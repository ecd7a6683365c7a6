//! Random programs: a few fragments in a row, each a piece of protocol with something bent.
//!
//! A fragment is an enum of its noun, drawn by proptest, so that a failing program shrinks by dropping fragments and by
//! simpler variants and parameters. What it does is not kept anywhere: a program that must stay is kept in text
//! ([`Kept`](crate::script::Kept)).
//! Not here: what is compared.

mod agreement;
mod answer;
mod barrier;
mod builder;
mod collective;
mod comm;
mod container;
mod draw;
mod exchange;
mod flag;
mod graph;
mod group;
mod holder;
mod ipc;
mod memory;
mod mutex;
mod p2p;
mod pool;
mod segments;
mod store;
mod stream;
mod window;

use std::sync::Arc;

use proptest::prelude::*;
use rankcheck_model::{
    BarrierOp, CollectiveKind, CommOp, Config, ExchangeOp, InFlight, IpcOp, MapOp, MemoryOp, Op, Operand,
    Rank, Resources, ThreadOp,
};

use crate::script::{Item, Recall, Script, Trial};
use builder::{Builder, Built, built};

/// The nouns of which there are fragments. Each is drawn as often as its fragments weigh: 4 is an ordinary one, and
/// those whose rules few others break weigh three times as much.
macro_rules! nouns {
    (general { $($noun:ident($module:ident),)* } other { $($other:ident($own:ident),)* }) => {
        /// A piece of protocol with something bent.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Fragment {
            $($noun($module::Fragment),)*
            $($other($own::Fragment),)*
        }

        impl Fragment {
            fn build(self, b: &mut Builder) {
                match self {
                    $(Self::$noun(fragment) => fragment.build(b),)*
                    $(Self::$other(fragment) => fragment.build(b),)*
                }
            }
        }

        fn fragment() -> impl Strategy<Value = Fragment> {
            proptest::strategy::Union::new_weighted(vec![
                $(($module::Fragment::WEIGHT, any::<$module::Fragment>().prop_map(Fragment::$noun).boxed()),)*
            ])
        }
    };
}

nouns! {
    general {
        Store(store),
        Flag(flag),
        Container(container),
        Mutex(mutex),
        Stream(stream),
        Memory(memory),
        Pool(pool),
        Comm(comm),
        Collective(collective),
        Window(window),
        Group(group),
        P2p(p2p),
        Graph(graph),
        Barrier(barrier),
        Exchange(exchange),
        Ipc(ipc),
        Answer(answer),
        Agreement(agreement),
    }
    // Of families of their own.
    other {
        Segments(segments),
        Holder(holder),
    }
}

/// The fragments of one noun.
fn of<F: Arbitrary + 'static>(noun: fn(F) -> Fragment) -> BoxedStrategy<Fragment> {
    any::<F>().prop_map(noun).boxed()
}

/// What a random program is made of.
#[derive(Debug, Clone)]
pub struct Recipe {
    ranks: u32,
    fragments: Vec<Fragment>,
}

/// Random programs that are about something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Every noun.
    General,
    /// Two threads of a rank change its lists and maps under mutexes, and sometimes look what is there.
    Mutexes,
    /// Ranks ask, and what they are answered matters at once, later, or never.
    Answers,
    /// Ranks decide for themselves, and agree then.
    Agreements,
    /// Pools hand out free segments in the order of their addresses, which may show.
    Segments,
    /// Somebody comes by memory later, or nobody.
    Holders,
}

impl Family {
    /// All of them, in the order of declaration.
    pub const ALL: [Self; 6] =
        [Self::General, Self::Mutexes, Self::Answers, Self::Agreements, Self::Segments, Self::Holders];

    /// The numbers of ranks. What is asked on each of three multiplies.
    fn ranks(self) -> BoxedStrategy<u32> {
        match self {
            Self::General => (2_u32..=3).boxed(),
            Self::Mutexes | Self::Answers | Self::Agreements | Self::Segments | Self::Holders => {
                prop_oneof![2 => Just(2), 1 => Just(3)].boxed()
            }
        }
    }

    /// The programs: of 2 or 3 ranks and a few fragments.
    pub fn recipes(self) -> BoxedStrategy<Recipe> {
        use Fragment::{Agreement, Answer, Barrier, Container, Holder, Mutex, Segments, Stream};
        let (fragments, at_most) = match self {
            Self::General => (fragment().boxed(), 4),
            Self::Mutexes => (prop_oneof![6 => of(Mutex), 1 => of(Container), 1 => of(Answer)].boxed(), 2),
            Self::Answers => (prop_oneof![8 => of(Answer), 1 => of(Container), 1 => of(Stream)].boxed(), 4),
            Self::Agreements => {
                (prop_oneof![5 => of(Agreement), 2 => of(Answer), 1 => of(Barrier)].boxed(), 4)
            }
            Self::Holders => (prop_oneof![6 => of(Holder), 1 => of(Answer), 1 => of(Barrier)].boxed(), 2),
            Self::Segments => (prop_oneof![4 => of(Segments), 1 => of(Answer)].boxed(), 2),
        };
        let parts = (self.ranks(), proptest::collection::vec(fragments, 1..=at_most));
        parts.prop_map(|(ranks, fragments)| Recipe { ranks, fragments }).boxed()
    }
}

impl Recipe {
    /// Returns the program that the fragments make, with what may fail in it.
    #[must_use]
    pub fn trial(&self) -> Trial {
        let Built { script, config, .. } = built(self.ranks, &self.fragments);
        Trial { script: Arc::new(script), config }
    }

    /// The same, where NCCL lets go whom it need not hold back.
    #[must_use]
    pub fn trial_that_lets_go(&self) -> Trial {
        let Trial { script, config } = self.trial();
        Trial { script, config: Config { in_flight: InFlight::OfPlatform, ..config } }
    }

    /// The program in which every rank runs what the rank runs that the first fragment is about, without what tells
    /// ranks apart.
    #[must_use]
    pub fn trial_of_alike(&self) -> Trial {
        self.alike(|script, op| op_without_ranks(script, self.ranks, op))
    }

    /// The same, but for collectives with a root: a wrong program, because these tell ranks apart.
    #[must_use]
    pub fn trial_of_alike_with_roots(&self) -> Trial {
        self.alike(|script, op| {
            if matches!(op, Op::Collective(_)) {
                vec![op.clone()]
            } else {
                op_without_ranks(script, self.ranks, op)
            }
        })
    }

    /// The program of [`trial`](Self::trial), whose ranks are taken for interchangeable although they are not.
    #[must_use]
    pub fn trial_taken_for_alike(&self) -> Trial {
        let Built { mut script, config, .. } = built(self.ranks, &self.fragments);
        script.interchangeable = true;
        Trial { script: Arc::new(script), config }
    }

    /// The program in which every rank runs what the first fragment's rank runs, with what stands for each operation.
    fn alike(&self, stands_for: impl Fn(&Script, &Op) -> Vec<Op>) -> Trial {
        let Built { mut script, config, about } = built(self.ranks, &self.fragments);
        let threads = &script.ranks[about as usize];
        let changed = |item| changed(item, |op| stands_for(&script, op));
        let threads: Vec<Vec<Item>> =
            threads.iter().map(|items| items.iter().flat_map(changed).collect()).collect();
        script.ranks = vec![threads; self.ranks as usize];
        script.interchangeable = true;
        Trial { script: Arc::new(script), config }
    }
}

/// An item with other operations, which produce as many slots.
fn changed(item: &Item, of: impl Fn(&Op) -> Vec<Op>) -> Vec<Item> {
    match item {
        Item::Do(op) => of(op).into_iter().map(Item::Do).collect(),
        Item::If(..) => vec![item.clone()],
        Item::Recall(Recall { question, then, otherwise }) => {
            let all = |ops: &[Op]| ops.iter().flat_map(&of).collect();
            let (then, otherwise) = (all(then), all(otherwise));
            vec![Item::Recall(Recall { question: *question, then, otherwise })]
        }
    }
}

/// What stands for an operation where ranks are interchangeable: as many slots, and no rank.
fn op_without_ranks(script: &Script, ranks: u32, op: &Op) -> Vec<Op> {
    let all = || (0..ranks).map(Rank).collect();
    match op {
        Op::Comm(CommOp::Split { name, .. }) => {
            vec![Op::Comm(CommOp::Init { name: *name, members: all(), children: Resources::Own })]
        }
        Op::Collective(call) => {
            let mut call = Arc::clone(call);
            Arc::make_mut(&mut call).kind = CollectiveKind::AllReduce;
            vec![Op::Collective(call)]
        }
        Op::Barrier(BarrierOp::Enter { .. }) => vec![Op::Barrier(BarrierOp::Enter { members: all() })],
        Op::Barrier(BarrierOp::AllAgree { value, .. }) => {
            vec![Op::Barrier(BarrierOp::AllAgree { members: all(), value: value.clone() })]
        }
        Op::Transfer(_) | Op::Memory(MemoryOp::Expect { .. }) => {
            vec![Op::Thread(ThreadOp::Step { label: script.name("left out") })]
        }
        // Memory of another rank is memory of one of them.
        Op::Ipc(IpcOp::Open { .. }) | Op::Exchange(ExchangeOp { .. }) => {
            let (map, key, default) = (script.name("empty"), Operand::Null, Operand::Null);
            vec![Op::Map(MapOp::Get { map, key, default }); op.slots() as usize]
        }
        Op::Thread(_)
        | Op::Comm(_)
        | Op::Window(_)
        | Op::Group(_)
        | Op::Overlap(_)
        | Op::Stream(_)
        | Op::Event(_)
        | Op::Graph(_)
        | Op::Memory(_)
        | Op::Pool(_)
        | Op::Ipc(_)
        | Op::Mutex(_)
        | Op::Store(_)
        | Op::Flag(_)
        | Op::Map(_)
        | Op::List(_) => vec![op.clone()],
    }
}

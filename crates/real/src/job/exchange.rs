//! What the ranks of a case ask of each other outside CUDA and NCCL: rendezvous, store, flags, schedule.
//!
//! A table without time or connections: a request goes in, and the answers that it makes possible come out.
//! Which communicator a rendezvous gets is decided here as well.
//! Not here: how requests travel ([`crate::wire`]), and when waiting has been long enough ([`super::watch`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rankcheck_model::{Rank, Resources};
use serde_json::Value;

use crate::case::{At, CommHistory, CommTicket, Vote};
use crate::flag::WordPosition;
use crate::wire::{Reply, Request};

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) rank: Rank,
    /// The host thread, if it is inside a call.
    pub(super) thread: Option<u32>,
    /// The number of the request, which the reply carries.
    pub(super) id: u64,
}

/// Communicators of the whole job.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    next: u64,
    /// By members, and by whether children share its channels: what earlier cases left, in the order in which they
    /// asked for them.
    kept: BTreeMap<(Vec<Rank>, Resources), Vec<WarmComm>>,
}

/// A communicator that lives on in the processes that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WarmComm {
    id: u64,
    /// The workers, by number, in the order of the members.
    workers: Vec<u64>,
}

impl Tickets {
    /// Forgets the communicators that have a member among processes that are gone, and returns the other
    /// members of these: they hold a communicator that can neither be used nor destroyed.
    pub(super) fn forget(&mut self, gone: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut left = BTreeSet::new();
        for kept in self.kept.values_mut() {
            kept.retain(|ticket| {
                let lost = ticket.workers.iter().any(|worker| gone.contains(worker));
                if lost {
                    left.extend(ticket.workers.iter().filter(|worker| !gone.contains(worker)));
                }
                !lost
            });
        }
        left
    }

    /// The workers that hold a communicator.
    pub(super) fn holders(&self) -> BTreeSet<u64> {
        self.kept.values().flatten().flat_map(|kept| kept.workers.iter().copied()).collect()
    }
}

/// Members of an init in communicator order, name and number; or of an agreement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Gathering {
    Init(String, u32, Vec<Rank>, Resources),
    Agree(Vec<Rank>, u32),
    Gather(Vec<Rank>, u32),
}

impl Gathering {
    fn members(&self) -> &[Rank] {
        match self {
            Self::Init(_, _, members, _) | Self::Agree(members, _) | Self::Gather(members, _) => members,
        }
    }
}

/// The file in which the flags of a case lie: made by the first worker that maps it, and removed at the end.
#[derive(Debug)]
struct WordsFile(PathBuf);

impl WordsFile {
    fn new() -> Self {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let nth = CASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("rankcheck-words-{}-{nth}", std::process::id());
        // Where Linux keeps files in memory; the driver takes pages of other files too.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Self(folder.join(name))
    }
}

impl Drop for WordsFile {
    fn drop(&mut self) {
        // Most cases have no flags, and then nobody has made it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The tables of one case.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    tickets: &'a mut Tickets,
    comms: CommHistory,
    /// The workers of the ranks, by number.
    workers: &'a [u64],
    /// Who has come, and what they brought.
    here: BTreeMap<Gathering, Vec<(Asker, Value)>>,
    /// Inits at the end of a group: their communicators, and who came without waiting.
    announced: BTreeMap<Gathering, (CommTicket, BTreeSet<Rank>)>,
    /// Communicators of this case by members, in the order in which they were met for.
    met: BTreeMap<(Vec<Rank>, Resources), Vec<u64>>,
    unique_ids: BTreeMap<u64, Vec<u8>>,
    store: BTreeMap<String, Value>,
    /// Flags, in the order of their words.
    flags: Vec<String>,
    words: WordsFile,
    /// Ranks that have reported.
    gone: BTreeSet<Rank>,
    /// Ranks whose programs are over, and that wait for the others.
    resting: BTreeSet<Rank>,
    turns: Vec<(At, TurnStage)>,
    /// Who waits for a value that is not there yet, oldest first.
    waiting: Vec<(Asker, Request)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnStage {
    ToCome,
    Over,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        tickets: &'a mut Tickets,
        comms: CommHistory,
        turns: &[At],
        workers: &'a [u64],
    ) -> Self {
        Self {
            tickets,
            comms,
            workers,
            here: BTreeMap::new(),
            announced: BTreeMap::new(),
            met: BTreeMap::new(),
            unique_ids: BTreeMap::new(),
            store: BTreeMap::new(),
            flags: Vec::new(),
            words: WordsFile::new(),
            gone: BTreeSet::new(),
            resting: BTreeSet::new(),
            turns: turns.iter().map(|at| (*at, TurnStage::ToCome)).collect(),
            waiting: Vec::new(),
        }
    }

    /// Takes a request; all answers that it makes possible, its own among them if it need not wait.
    pub(super) fn ask(&mut self, asker: Asker, request: Request) -> Vec<(Asker, Reply)> {
        match request {
            Request::Init { name, nth, members, children } => {
                self.meet(Gathering::Init(name, nth, members, children), asker, Value::Null)
            }
            Request::Announce { name, nth, members, children } => self.announce(
                Gathering::Init(name, nth, members.clone(), children),
                asker,
                (members, children),
            ),
            Request::Agree { members, nth, vote } => {
                self.meet(Gathering::Agree(members, nth), asker, Value::Bool(vote == Vote::Yes))
            }
            Request::Gather { members, nth, brought } => {
                self.meet(Gathering::Gather(members, nth), asker, brought)
            }
            Request::Word { flag } => {
                let known = self.flags.iter().position(|name| *name == flag);
                let nth = known.unwrap_or_else(|| {
                    self.flags.push(flag);
                    self.flags.len() - 1
                });
                let nth = u32::try_from(nth).expect("few flags");
                self.done(asker, Reply::Word(WordPosition { file: self.words.0.clone(), nth }))
            }
            Request::UniqueId { ticket, own: Some(own) } => {
                let id = self.unique_ids.entry(ticket).or_insert(own).clone();
                self.done(asker, Reply::UniqueId(id))
            }
            Request::StoreSet { key, value } => {
                self.store.insert(key, value);
                self.done(asker, Reply::Done)
            }
            Request::StoreDelete { key } => {
                self.store.remove(&key);
                self.done(asker, Reply::Done)
            }
            Request::TurnOver { at } => {
                if let Some((_, turn)) = self.turns.iter_mut().find(|row| **row == (at, TurnStage::ToCome)) {
                    *turn = TurnStage::Over;
                }
                self.done(asker, Reply::Done)
            }
            Request::UniqueId { own: None, .. }
            | Request::StoreGet { .. }
            | Request::Rest
            | Request::Turn { .. } => {
                if request == Request::Rest {
                    self.resting.insert(asker.rank);
                }
                self.waiting.push((asker, request));
                self.release()
            }
        }
    }

    /// The rank will not come to its scheduled operations any more: nobody waits for them.
    pub(super) fn leaves(&mut self, rank: Rank) -> Vec<(Asker, Reply)> {
        for (at, turn) in &mut self.turns {
            if at.rank == rank {
                *turn = TurnStage::Over;
            }
        }
        self.waiting.retain(|(asker, _)| asker.rank != rank);
        self.gone.insert(rank);
        self.release()
    }

    /// The case ended well: the next warm case gets its communicators.
    pub(super) fn keep(self) {
        if self.comms == CommHistory::Fresh {
            return;
        }
        for ((members, children), ids) in self.met {
            let workers: Vec<u64> = members.iter().map(|rank| self.workers[rank.at()]).collect();
            let kept = self.tickets.kept.entry((members, children)).or_default();
            for id in ids {
                if kept.iter().all(|kept| kept.id != id) {
                    kept.push(WarmComm { id, workers: workers.clone() });
                }
            }
        }
    }

    fn done(&mut self, asker: Asker, answer: Reply) -> Vec<(Asker, Reply)> {
        let mut answers = vec![(asker, answer)];
        answers.append(&mut self.release());
        answers
    }

    fn meet(&mut self, meeting: Gathering, asker: Asker, brought: Value) -> Vec<(Asker, Reply)> {
        self.here.entry(meeting.clone()).or_default().push((asker, brought));
        self.complete(meeting)
    }

    /// Somebody comes to an init and does not wait: it learns the communicator, and the others find it there.
    fn announce(
        &mut self,
        meeting: Gathering,
        asker: Asker,
        (members, children): (Vec<Rank>, Resources),
    ) -> Vec<(Asker, Reply)> {
        let known = self.announced.get(&meeting).map(|(ticket, _)| ticket.clone());
        let ticket = known.unwrap_or_else(|| self.ticket(members, children));
        let (_, came) =
            self.announced.entry(meeting.clone()).or_insert_with(|| (ticket.clone(), BTreeSet::new()));
        came.insert(asker.rank);
        let mut answers = vec![(asker, Reply::Comm(ticket))];
        answers.append(&mut self.complete(meeting));
        answers
    }

    /// The answers to those who wait in a gathering, if everybody has come.
    fn complete(&mut self, meeting: Gathering) -> Vec<(Asker, Reply)> {
        let Some(here) = self.here.get(&meeting) else { return Vec::new() };
        let announced = self.announced.get(&meeting);
        let came = |rank: &Rank| {
            here.iter().any(|(asker, _)| asker.rank == *rank)
                || announced.is_some_and(|(_, came)| came.contains(rank))
        };
        if !meeting.members().iter().all(came) {
            return Vec::new();
        }
        let ticket = announced.map(|(ticket, _)| ticket.clone());
        let here = self.here.remove(&meeting).expect("it was seen above");
        let answer = match meeting {
            Gathering::Init(_, _, members, children) => {
                Reply::Comm(ticket.unwrap_or_else(|| self.ticket(members, children)))
            }
            Gathering::Agree(..) => {
                let all = here.iter().all(|(_, vote)| *vote == Value::Bool(true));
                Reply::Agreed(if all { Vote::Yes } else { Vote::No })
            }
            Gathering::Gather(members, _) => {
                let of = |member: &Rank| here.iter().find(|(asker, _)| asker.rank == *member);
                let brought = |member| of(member).map(|(_, brought)| brought.clone());
                Reply::Gathered(members.iter().filter_map(brought).collect())
            }
        };
        here.into_iter().map(|(asker, _)| (asker, answer.clone())).collect()
    }

    /// The communicator of a rendezvous: in a warm case the one that the same members kept longest among those
    /// that this case has not used, else a new one.
    fn ticket(&mut self, members: Vec<Rank>, children: Resources) -> CommTicket {
        let key = (members.clone(), children);
        let met = self.met.entry(key.clone()).or_default();
        let kept = match self.comms {
            CommHistory::Warm => self.tickets.kept.get(&key).and_then(|kept| kept.get(met.len())),
            CommHistory::Fresh => None,
        };
        let (id, comms) = match kept {
            Some(kept) => (kept.id, CommHistory::Warm),
            None => {
                self.tickets.next += 1;
                (self.tickets.next, CommHistory::Fresh)
            }
        };
        met.push(id);
        CommTicket { id, members, children, comms }
    }

    /// The answers to all who wait for something that is there now.
    fn release(&mut self) -> Vec<(Asker, Reply)> {
        let mut answers = Vec::new();
        for (asker, request) in std::mem::take(&mut self.waiting) {
            match self.answer(&request) {
                Some(answer) => answers.push((asker, answer)),
                None => self.waiting.push((asker, request)),
            }
        }
        answers
    }

    fn answer(&self, request: &Request) -> Option<Reply> {
        match request {
            Request::UniqueId { ticket, .. } => self.unique_ids.get(ticket).cloned().map(Reply::UniqueId),
            Request::StoreGet { key } => self.store.get(key).cloned().map(Reply::Value),
            Request::Rest => {
                let rests = |rank: &Rank| self.resting.contains(rank) || self.gone.contains(rank);
                let ranks = (0..).map(Rank).take(self.workers.len());
                ranks.into_iter().all(|rank| rests(&rank)).then_some(Reply::Done)
            }
            Request::Turn { at } => {
                let before = self.turns.iter().take_while(|row| **row != (*at, TurnStage::ToCome));
                // An operation that is not (or no longer) scheduled waits for nobody.
                let none = !self.turns.contains(&(*at, TurnStage::ToCome));
                let over = before.into_iter().all(|(_, turn)| *turn == TurnStage::Over);
                (none || over).then_some(Reply::Done)
            }
            Request::Init { .. }
            | Request::Announce { .. }
            | Request::Agree { .. }
            | Request::StoreSet { .. }
            | Request::StoreDelete { .. }
            | Request::Gather { .. }
            | Request::Word { .. }
            | Request::TurnOver { .. } => unreachable!("they do not wait for a value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Rank; 2] = [Rank(0), Rank(1)];

    fn asker(rank: u32, id: u64) -> Asker {
        Asker { rank: Rank(rank), thread: Some(0), id }
    }

    fn init(nth: u32) -> Request {
        Request::Init { name: "tp".to_owned(), nth, members: BOTH.to_vec(), children: Resources::Own }
    }

    /// Both ranks meet for the n-th communicator.
    fn comm(exchange: &mut Exchange<'_>, nth: u32) -> CommTicket {
        assert_eq!(exchange.ask(asker(0, 1), init(nth)), vec![]);
        let answers = exchange.ask(asker(1, 1), init(nth));
        let [(_, Reply::Comm(first)), (_, Reply::Comm(second))] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        assert_eq!(first, second);
        first.clone()
    }

    #[test]
    fn votes_are_joined() {
        let mut tickets = Tickets::default();
        let mut exchange = Exchange::new(&mut tickets, CommHistory::Fresh, &[], &[1, 2]);
        let agree = |nth, vote| Request::Agree { members: BOTH.to_vec(), nth, vote };
        assert_eq!(exchange.ask(asker(0, 1), agree(0, Vote::Yes)), vec![]);
        assert_eq!(exchange.ask(asker(0, 2), agree(1, Vote::Yes)), vec![]);
        let no = Reply::Agreed(Vote::No);
        let answers = exchange.ask(asker(1, 7), agree(0, Vote::No));
        assert_eq!(answers, vec![(asker(0, 1), no.clone()), (asker(1, 7), no)]);
        let yes = Reply::Agreed(Vote::Yes);
        let answers = exchange.ask(asker(1, 8), agree(1, Vote::Yes));
        assert_eq!(answers, vec![(asker(0, 2), yes.clone()), (asker(1, 8), yes)]);
    }

    #[test]
    fn warm_cases_share_communicators_by_members_and_order() {
        let mut tickets = Tickets::default();
        let mut exchange = Exchange::new(&mut tickets, CommHistory::Warm, &[], &[1, 2]);
        let (first, second) = (comm(&mut exchange, 0), comm(&mut exchange, 1));
        assert_eq!((first.comms, second.comms), (CommHistory::Fresh, CommHistory::Fresh));
        exchange.keep();

        let mut fresh = Exchange::new(&mut tickets, CommHistory::Fresh, &[], &[1, 2]);
        let third = comm(&mut fresh, 0);
        assert_eq!(third.comms, CommHistory::Fresh);
        assert!(third.id > second.id);
        fresh.keep();

        let mut warm = Exchange::new(&mut tickets, CommHistory::Warm, &[], &[1, 2]);
        assert_eq!(comm(&mut warm, 0), CommTicket { comms: CommHistory::Warm, ..first });
        assert_eq!(comm(&mut warm, 1), CommTicket { comms: CommHistory::Warm, ..second });
        assert_eq!(comm(&mut warm, 2).comms, CommHistory::Fresh);
        drop(warm);

        assert_eq!(tickets.holders(), BTreeSet::from([1, 2]));
        assert_eq!(tickets.forget(&BTreeSet::from([2])), BTreeSet::from([1]));
        assert_eq!(tickets.holders(), BTreeSet::new());
    }

    #[test]
    fn a_flag_is_one_word_for_all_and_a_key_is_awaited_until_it_is_there() {
        let mut tickets = Tickets::default();
        let mut exchange = Exchange::new(&mut tickets, CommHistory::Fresh, &[], &[1, 2]);
        let mut word = |rank, id, flag: &str| {
            let answers = exchange.ask(asker(rank, id), Request::Word { flag: flag.to_owned() });
            let [(_, Reply::Word(word))] = answers.as_slice() else { panic!("{answers:?}") };
            word.nth
        };
        assert_eq!([word(0, 1, "go"), word(1, 2, "stop"), word(1, 3, "go")], [0, 1, 0]);
        let done = |rank, id| (asker(rank, id), Reply::Done);

        let get = || Request::StoreGet { key: "k".to_owned() };
        assert_eq!(exchange.ask(asker(0, 5), get()), vec![]);
        let set = Request::StoreSet { key: "k".to_owned(), value: Value::from(7) };
        let value = (asker(0, 5), Reply::Value(Value::from(7)));
        assert_eq!(exchange.ask(asker(1, 6), set), vec![done(1, 6), value]);
        let delete = Request::StoreDelete { key: "k".to_owned() };
        assert_eq!(exchange.ask(asker(1, 7), delete), vec![done(1, 7)]);
        assert_eq!(exchange.ask(asker(0, 8), get()), vec![]);
    }

    #[test]
    fn what_members_bring_is_gathered_in_their_order_and_ranks_rest_together() {
        let mut tickets = Tickets::default();
        let mut exchange = Exchange::new(&mut tickets, CommHistory::Fresh, &[], &[1, 2, 3]);
        let gather = |brought: i64| Request::Gather {
            members: vec![Rank(1), Rank(0)],
            nth: 0,
            brought: Value::from(brought),
        };
        assert_eq!(exchange.ask(asker(0, 1), gather(10)), vec![]);
        let all = Reply::Gathered(vec![Value::from(11), Value::from(10)]);
        assert_eq!(
            exchange.ask(asker(1, 2), gather(11)),
            vec![(asker(0, 1), all.clone()), (asker(1, 2), all)]
        );
        assert_eq!(exchange.ask(asker(0, 3), Request::Rest), vec![]);
        assert_eq!(exchange.leaves(Rank(2)), vec![]);
        let done = |rank, id| (asker(rank, id), Reply::Done);
        assert_eq!(exchange.ask(asker(1, 4), Request::Rest), vec![done(0, 3), done(1, 4)]);
    }

    #[test]
    fn turns_come_in_order_and_not_of_who_left() {
        let at = |rank, index| At { rank: Rank(rank), thread: 0, index };
        let order = [at(1, 4), at(0, 2), at(1, 5)];
        let mut tickets = Tickets::default();
        let mut exchange = Exchange::new(&mut tickets, CommHistory::Fresh, &order, &[1, 2]);
        let done = |rank, id| (asker(rank, id), Reply::Done);
        assert_eq!(exchange.ask(asker(0, 1), Request::Turn { at: at(0, 2) }), vec![]);
        assert_eq!(exchange.ask(asker(0, 2), Request::Turn { at: at(0, 9) }), vec![done(0, 2)]);
        assert_eq!(exchange.ask(asker(1, 3), Request::Turn { at: at(1, 4) }), vec![done(1, 3)]);
        let over = |at| Request::TurnOver { at };
        assert_eq!(exchange.ask(asker(1, 4), over(at(1, 4))), vec![done(1, 4), done(0, 1)]);
        assert_eq!(exchange.ask(asker(1, 5), Request::Turn { at: at(1, 5) }), vec![]);
        assert_eq!(exchange.leaves(Rank(0)), vec![done(1, 5)]);
    }
}

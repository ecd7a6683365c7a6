//! Random programs: a few fragments in a row, each a piece of protocol with something bent.
//!
//! A fragment is an enum of its noun, drawn by proptest, so that a failing program shrinks by dropping fragments and by
//! simpler variants and parameters. What it does is not kept anywhere: a program that must stay is kept in text
//! ([`Kept`](crate::script::Kept)).
//! Not here: what is compared.

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
mod ipc;
mod memory;
mod mutex;
mod p2p;
mod pool;
mod store;
mod stream;
mod window;

use std::sync::Arc;

use proptest::prelude::*;
use rankcheck_model::{
    CollectiveKind, CommOp, ExchangeOp, IpcOp, MapOp, MemoryOp, Op, Operand, Rank, Resources, ThreadOp,
};

use crate::script::{Item, Script, Trial};
use builder::{Builder, Built, built};

/// The nouns of which there are fragments. Each is drawn as often as its fragments weigh: 4 is an ordinary one, and
/// those whose rules few others break weigh three times as much.
macro_rules! nouns {
    ($($noun:ident($module:ident),)*) => {
        /// A piece of protocol with something bent.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Fragment {
            $($noun($module::Fragment),)*
        }

        impl Fragment {
            fn build(self, b: &mut Builder) {
                match self {
                    $(Self::$noun(fragment) => fragment.build(b),)*
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
}

/// What a random program is made of.
#[derive(Debug, Clone)]
pub struct Recipe {
    ranks: u32,
    fragments: Vec<Fragment>,
}

/// Random programs of 2 or 3 ranks and 1 to 4 fragments.
pub fn recipes() -> impl Strategy<Value = Recipe> {
    let parts = (2_u32..=3, proptest::collection::vec(fragment(), 1..5));
    parts.prop_map(|(ranks, fragments)| Recipe { ranks, fragments })
}

impl Recipe {
    /// Returns the program that the fragments make, with what may fail in it.
    #[must_use]
    pub fn trial(&self) -> Trial {
        let Built { script, config, .. } = built(self.ranks, &self.fragments);
        Trial { script: Arc::new(script), config }
    }

    /// The program in which every rank runs what the rank runs that the first fragment is about, without what tells
    /// ranks apart.
    #[must_use]
    pub fn trial_of_alike(&self) -> Trial {
        let Built { mut script, config, about } = built(self.ranks, &self.fragments);
        let threads = &script.ranks[about as usize];
        let without_ranks = |item| without_ranks(&script, self.ranks, item);
        let threads: Vec<Vec<Item>> =
            threads.iter().map(|items| items.iter().flat_map(without_ranks).collect()).collect();
        script.ranks = vec![threads; self.ranks as usize];
        script.interchangeable = true;
        Trial { script: Arc::new(script), config }
    }
}

/// What stands for an operation where ranks are interchangeable: as many slots, and no rank.
fn without_ranks(script: &Script, ranks: u32, item: &Item) -> Vec<Item> {
    let step = || vec![Item::Do(Op::Thread(ThreadOp::Step { label: script.name("left out") }))];
    let Item::Do(op) = item else { return vec![item.clone()] };
    match op {
        Op::Comm(CommOp::Split { name, .. }) => {
            let (name, members) = (*name, (0..ranks).map(Rank).collect());
            vec![Item::Do(Op::Comm(CommOp::Init { name, members, children: Resources::Own }))]
        }
        Op::Collective(call) => {
            let mut call = Arc::clone(call);
            Arc::make_mut(&mut call).kind = CollectiveKind::AllReduce;
            vec![Item::Do(Op::Collective(call))]
        }
        Op::Transfer(_) | Op::Memory(MemoryOp::Expect { .. }) => step(),
        // Memory of another rank is memory of one of them.
        Op::Ipc(IpcOp::Open { .. }) | Op::Exchange(ExchangeOp { .. }) => {
            let (map, key, default) = (script.name("empty"), Operand::Null, Operand::Null);
            vec![Item::Do(Op::Map(MapOp::Get { map, key, default })); op.slots() as usize]
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
        | Op::Barrier(_)
        | Op::Mutex(_)
        | Op::Store(_)
        | Op::Flag(_)
        | Op::Map(_)
        | Op::List(_) => vec![item.clone()],
    }
}

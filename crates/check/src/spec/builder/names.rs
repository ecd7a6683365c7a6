//! The strings, locations and flags that all evaluations of one source share.
//!
//! Not here: the operations that speak of them ([`super::Builder`]).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rankcheck_model::id::ContentIds;
use rankcheck_model::{EvaluatedProgram, Loc, LocId, Rank, Symmetry, Token};
use rustc_hash::{FxHashMap, FxHashSet};

/// The strings, locations and flags of one source, shared by all its evaluations.
#[derive(Debug, Default)]
pub struct SourceNames {
    words: Arc<Words>,
    distinct: AtomicBool,
    /// Where ranks were told apart first.
    told_apart_at: OnceLock<Loc>,
    mentioned: Mutex<BTreeSet<String>>,
}

/// The strings, locations and lists of members of one program, shared by all its sources: what one of them named, the others know.
#[derive(Debug, Default)]
pub struct Words {
    tokens: Mutex<ContentIds<Token, Arc<str>>>,
    locs: Mutex<Locs>,
    member_lists: Mutex<FxHashSet<Arc<[Rank]>>>,
}

/// Locations are numbered in order of first use: what a state is does not depend on them.
#[derive(Debug, Default)]
struct Locs {
    by_loc: FxHashMap<Loc, LocId>,
    locs: Vec<Loc>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked while holding it, over two texts with one token, changed nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("fewer than 2^32 entries: each takes an operation to make")
}

impl SourceNames {
    /// Names of a source of a program of which these are the words.
    pub fn of(words: &Arc<Words>) -> Self {
        Self { words: Arc::clone(words), ..Self::default() }
    }

    /// The token of a text.
    ///
    /// # Panics
    /// If another text has the same token by chance.
    pub fn token(&self, text: &str) -> Token {
        lock(&self.words.tokens).id_of(text, |text| text.into())
    }

    /// The text of a token that [`SourceNames::token`] gave out, here or for another source of the program.
    pub fn text(&self, token: Token) -> Arc<str> {
        lock(&self.words.tokens).get(token).expect("tokens come from this program").clone()
    }

    /// The number of a location.
    pub fn loc_id(&self, loc: &Loc) -> LocId {
        let mut locs = lock(&self.words.locs);
        if let Some(id) = locs.by_loc.get(loc) {
            return *id;
        }
        let id = LocId(index(locs.locs.len()));
        locs.locs.push(loc.clone());
        locs.by_loc.insert(loc.clone(), id);
        id
    }

    /// The location of a number that [`SourceNames::loc_id`] gave out.
    pub fn loc(&self, id: LocId) -> Loc {
        lock(&self.words.locs).locs.get(id.at()).expect("places come from this program").clone()
    }

    /// The one list of these members that all ranks share, for a list of all ranks on each of many ranks would fill memory.
    pub(crate) fn member_list(&self, members: &[Rank]) -> Arc<[Rank]> {
        let mut lists = lock(&self.words.member_lists);
        if let Some(known) = lists.get(members) {
            return Arc::clone(known);
        }
        let list: Arc<[Rank]> = members.into();
        lists.insert(Arc::clone(&list));
        list
    }

    /// What evaluations have named and found so far.
    pub fn evaluated(&self) -> EvaluatedProgram {
        EvaluatedProgram {
            texts: lock(&self.words.tokens).contents().cloned().collect(),
            locs: lock(&self.words.locs).locs.clone(),
            distinct: self.distinct.load(Ordering::Relaxed),
            told_apart_at: self.told_apart_at(),
            mentioned: self.mentioned(),
        }
    }

    /// Takes over what evaluations of this program named and found in another process. Returns the numbers that the places
    /// have here.
    pub fn take_over(&self, evaluated: &EvaluatedProgram) -> Vec<LocId> {
        for text in &evaluated.texts {
            self.token(text);
        }
        if evaluated.distinct {
            self.make_distinct(evaluated.told_apart_at.clone());
        }
        evaluated.mentioned.iter().for_each(|assumption| self.mention(assumption));
        evaluated.locs.iter().map(|loc| self.loc_id(loc)).collect()
    }

    /// Some program looked at who it is, and where that is written, if it is known.
    pub fn make_distinct(&self, at: Option<Loc>) {
        if let Some(at) = at {
            self.told_apart_at.get_or_init(|| at);
        }
        self.distinct.store(true, Ordering::Relaxed);
    }

    /// Where ranks were told apart first.
    pub fn told_apart_at(&self) -> Option<Loc> {
        self.told_apart_at.get().cloned()
    }

    /// Whether ranks are interchangeable, as far as evaluated.
    pub fn symmetry(&self) -> Symmetry {
        if self.distinct.load(Ordering::Relaxed) { Symmetry::Distinct } else { Symmetry::Interchangeable }
    }

    /// Notes that an evaluation came by this named assumption.
    pub fn mention(&self, assumption: &str) {
        let mut mentioned = lock(&self.mentioned);
        if !mentioned.contains(assumption) {
            mentioned.insert(assumption.to_owned());
        }
    }

    /// The named assumptions that evaluations came by so far.
    pub fn mentioned(&self) -> BTreeSet<String> {
        lock(&self.mentioned).clone()
    }
}

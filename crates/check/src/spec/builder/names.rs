//! The strings, locations and flags that all evaluations of one source share.
//!
//! Not here: the operations that speak of them ([`super::Builder`]).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rankcheck_model::{Loc, LocId, Symmetry, Token};
use rustc_hash::FxHashMap;

/// The strings, locations and flags of one source, shared by all its evaluations. Numbers are given out in
/// order of first use and stay as they are.
#[derive(Debug, Default)]
pub struct SourceNames {
    tokens: Mutex<Tokens>,
    locs: Mutex<Locs>,
    distinct: AtomicBool,
    mentioned: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Tokens {
    by_text: FxHashMap<Arc<str>, Token>,
    texts: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
struct Locs {
    by_loc: FxHashMap<Loc, LocId>,
    locs: Vec<Loc>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no evaluation panics while it holds this lock")
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("fewer than 2^32 entries: each takes an operation to make")
}

impl SourceNames {
    /// The token of a text.
    pub fn token(&self, text: &str) -> Token {
        let mut tokens = lock(&self.tokens);
        if let Some(token) = tokens.by_text.get(text) {
            return *token;
        }
        let token = Token(index(tokens.texts.len()));
        let text: Arc<str> = text.into();
        tokens.texts.push(text.clone());
        tokens.by_text.insert(text, token);
        token
    }

    /// The text of a token that [`SourceNames::token`] gave out.
    pub fn text(&self, token: Token) -> Arc<str> {
        lock(&self.tokens).texts.get(token.at()).expect("tokens come from this source").clone()
    }

    /// The number of a location.
    pub fn loc_id(&self, loc: &Loc) -> LocId {
        let mut locs = lock(&self.locs);
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
        lock(&self.locs).locs.get(id.at()).expect("places come from this source").clone()
    }

    /// Some program looked at who it is.
    pub fn make_distinct(&self) {
        self.distinct.store(true, Ordering::Relaxed);
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

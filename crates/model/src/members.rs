//! Lists of ranks that meet, each kept once: ranks that bring equal lists are compared by a pointer, however long these
//! are.
//! Not here: what they meet for.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::id::fingerprint;
use crate::machine::locked;
use crate::rank::Rank;

/// World ranks in the order of whoever they are members of.
#[derive(Debug, Clone)]
pub struct MemberList {
    list: Arc<[Rank]>,
    /// The fingerprint of the list.
    hash: u128,
    ascending: bool,
}

impl MemberList {
    fn new(list: &Arc<[Rank]>) -> Self {
        let (hash, ascending) = (fingerprint(&**list), list.is_sorted());
        Self { list: Arc::clone(list), hash, ascending }
    }

    /// Returns the list of the members.
    #[must_use]
    pub fn list(&self) -> &Arc<[Rank]> {
        &self.list
    }

    /// Whether a rank is a member.
    #[must_use]
    pub fn has(&self, rank: Rank) -> bool {
        if self.ascending { self.list.binary_search(&rank).is_ok() } else { self.list.contains(&rank) }
    }
}

impl Deref for MemberList {
    type Target = [Rank];

    fn deref(&self) -> &[Rank] {
        &self.list
    }
}

impl PartialEq for MemberList {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.list, &other.list) || self.hash == other.hash && self.list == other.list
    }
}

impl Eq for MemberList {}

impl PartialOrd for MemberList {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MemberList {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.list, &other.list) { Ordering::Equal } else { self.list.cmp(&other.list) }
    }
}

impl Hash for MemberList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// The lists that ranks of a machine brought.
#[derive(Debug, Default)]
pub(crate) struct MemberLists(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    lists: FxHashSet<MemberList>,
    /// By the address of a list as it was brought, which is kept so that no other list comes to lie there.
    brought: FxHashMap<usize, (Arc<[Rank]>, MemberList)>,
}

impl MemberLists {
    /// The one of all equal lists.
    pub(crate) fn get(&self, list: &Arc<[Rank]>) -> MemberList {
        let at = Arc::as_ptr(list).cast::<Rank>() as usize;
        let mut all = locked(&self.0);
        if let Some((brought, members)) = all.brought.get(&at)
            && brought.len() == list.len()
        {
            return members.clone();
        }
        let new = MemberList::new(list);
        let members = all.lists.get(&new).cloned().unwrap_or_else(|| {
            all.lists.insert(new.clone());
            new
        });
        all.brought.insert(at, (Arc::clone(list), members.clone()));
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_one() {
        let lists = MemberLists::default();
        let ranks = |numbers: &[u32]| -> Arc<[Rank]> { numbers.iter().copied().map(Rank).collect() };
        let (one, same, turned) = (ranks(&[1, 2, 5]), ranks(&[1, 2, 5]), ranks(&[5, 2, 1]));
        let all = [&one, &same, &turned, &one].map(|list| lists.get(list));
        assert!(Arc::ptr_eq(all[0].list(), all[1].list()) && Arc::ptr_eq(all[0].list(), all[3].list()));
        assert_ne!(all[0], all[2]);
        for members in &all {
            assert!([1, 2, 5].into_iter().all(|rank| members.has(Rank(rank))));
            assert!([0, 3, 6].into_iter().all(|rank| !members.has(Rank(rank))));
        }
        assert_eq!(all[0].cmp(&all[2]), Ordering::Less);
        assert_eq!(all[0], MemberList::new(&same));
    }
}

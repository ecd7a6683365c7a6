//! Index newtypes: the words in which every table of the machine is addressed.
//! Not here: what lies in the tables, and ids that are made from contents ([`crate::id`]).

use serde::{Deserialize, Serialize};

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The index as a table offset.
            #[must_use]
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index!(
    /// One process of the job, numbered by its world rank.
    Rank
);
index!(
    /// A host thread of a rank; 0 is the thread that the rank starts with.
    Thread
);
index!(
    /// An interned location in the spec. Resolved by [`Source::loc`](crate::Source::loc).
    LocId
);

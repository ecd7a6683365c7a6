//! How fragments are drawn: enums whose variants are weighed, and the parameters that several nouns have.
//!
//! Not here: what a fragment does.

use proptest::prelude::*;

/// An enum of which proptest draws each variant as often as its weight says, and each field by itself.
///
/// Shrinking goes to variants that stand earlier and to smaller fields, so the simplest variant stands first.
macro_rules! drawn {
    (
        $(#[$about:meta])*
        $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $weight:literal => $variant:ident $({ $($field:ident: $type:ty),* $(,)? })?,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$doc])* $variant $({ $($field: $type),* })?,)*
        }

        impl $name {
            /// The weights of all variants together.
            #[allow(dead_code, reason = "asked of fragments alone")]
            pub(super) const WEIGHT: u32 = 0 $(+ $weight)*;
        }

        impl proptest::arbitrary::Arbitrary for $name {
            type Parameters = ();
            type Strategy = proptest::strategy::BoxedStrategy<Self>;

            fn arbitrary_with((): ()) -> Self::Strategy {
                use proptest::prelude::*;
                prop_oneof![
                    $($weight => (Just(()), $($(any::<$type>()),*)?)
                        .prop_map(|((), $($($field),*)?)| Self::$variant $({ $($field),* })?),)*
                ]
                .boxed()
            }
        }
    };
}

pub(super) use drawn;

/// A number below `N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Below<const N: u32>(pub(super) u32);

impl<const N: u32> Below<N> {
    pub(super) fn int(self) -> i64 {
        self.0.into()
    }
}

impl<const N: u32> Arbitrary for Below<N> {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        (0..N).prop_map(Self).boxed()
    }
}

/// A rank, of 2 ranks or of 3: the remainder says which.
pub(super) type Who = Below<6>;

drawn! {
    /// The thread of a rank that does something.
    pub(super) enum By {
        3 => First,
        /// The second, if another fragment needs one there.
        3 => SecondIfThere,
        2 => Second,
    }
}

drawn! {
    /// The stream that something is launched on.
    pub(super) enum On {
        2 => Default,
        3 => Side,
    }
}

impl On {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Side => "side",
        }
    }
}

drawn! {
    /// One of the two buffers that a rank has.
    pub(super) enum Either {
        1 => A,
        1 => B,
    }
}

//! What copies of a state share until one of them writes it.
//! Not here: what that is.

use std::ops::Deref;
use std::sync::Arc;

/// A part of a state. While a state runs on, nobody shares the parts that it writes: then a write needs no look at who else
/// has it.
#[derive(Debug)]
pub(super) struct StatePart<T> {
    /// Where this state alone has it.
    own: Option<Box<T>>,
    /// Where copies of the state may have it too.
    shared: Option<Arc<T>>,
}

impl<T: Default> Default for StatePart<T> {
    fn default() -> Self {
        Self { own: Some(Box::default()), shared: None }
    }
}

impl<T: Clone> Clone for StatePart<T> {
    fn clone(&self) -> Self {
        Self { own: self.own.clone(), shared: self.shared.clone() }
    }
}

impl<T> Deref for StatePart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.own {
            Some(part) => part,
            None => self.shared.as_ref().expect("it is either"),
        }
    }
}

impl<T: Clone> StatePart<T> {
    /// The part, to be written.
    #[inline]
    pub(super) fn own(&mut self) -> &mut T {
        match &mut self.own {
            Some(part) => part,
            own @ None => Self::taken(own, &mut self.shared),
        }
    }

    /// Whoever runs on writes a part often, and makes it its own once.
    #[cold]
    fn taken<'a>(own: &'a mut Option<Box<T>>, shared: &mut Option<Arc<T>>) -> &'a mut T {
        let shared = shared.take().expect("it is either");
        own.insert(Box::new(Arc::unwrap_or_clone(shared)))
    }

    /// Lets copies share it.
    pub(super) fn share(&mut self) {
        if let Some(part) = self.own.take() {
            self.shared = Some(Arc::from(part));
        }
    }

    /// Whether it was not written since one of the two was a copy of the other.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (&self.shared, &other.shared) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, _) | (_, None) => false,
        }
    }
}

//! Conditions under which runs are left out or taken for one, beside those that are sets of their own in
//! [`Config`](crate::Config). Each can be declared needless, and a law must notice.
//!
//! Not here: why they are needed, which stands where they are asked for.

/// A condition of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// One order of what follows stands for all only behind calls that nothing orders.
    UnorderedCalls,
    /// Where ranks get other numbers, so do the actors of accesses.
    ActorsRenumbered,
    /// So do ranks that tables and findings name.
    RanksRenumbered,
    /// So do ranks in the contents of memory.
    ContentsRenumbered,
    /// What work was launched with is gathered beside what its stream knows, unless the stream met it.
    LaunchesMet,
    /// A launch is remembered while a thread may launch something after it.
    LaunchesToCome,
    /// A launch is remembered while one that came before it waits on a stream.
    LaunchesQueued,
    /// A persistent set that has a turn at an object of a rank has all threads of the rank, and its streams where they may meet it.
    OwnObjects,
    /// One that has a turn at a key or a flag has whoever may do to it what clashes.
    Clashes,
    /// One that has somebody who is blocked has whoever may let him go on.
    Enablers,
    /// Memory that was given to other ranks may be come by, also where its own rank has no value of it.
    MemoryGivenAway,
    /// So may memory that work on a stream names.
    MemoryQueued,
    /// So may memory that a graph has captured.
    MemoryCaptured,
    /// So may memory in a list or a map.
    MemoryContained,
    /// Segments change places only where no value and no finding names them.
    SegmentsUnnamed,
}

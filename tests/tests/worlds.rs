//! Which process is which rank, and which communicator is which: right ones, and directories mixed up.
//!
//! Not here: calls that are not about communicators.

use std::path::PathBuf;

use rankcheck::runs::RunError;
use rankcheck::runs::world::{CommListener, World};
use rankcheck_model::Rank;
use rankcheck_recording::{Argument, Header, Shape};
use rstest::rstest;

fn shape(name: &str, fields: &[(&str, Argument)]) -> Shape {
    Shape {
        name: name.into(),
        keys: fields.iter().map(|(key, _)| Box::from(*key)).collect(),
        values: fields.iter().map(|(_, value)| value.clone()).collect(),
        instant: name == "process",
    }
}

/// A process while its calls are told.
struct ProcessFile {
    header: Header,
    local: CommListener,
    calls: u64,
}

impl ProcessFile {
    fn new(rank: Option<u32>, ranks: Option<u32>) -> Self {
        let header = Header { rank, ranks, run: "one".to_owned(), ..Header::default() };
        Self { header, local: CommListener::default(), calls: 0 }
    }

    fn call(&mut self, call: &Shape, result: Option<&Shape>) -> &mut Self {
        self.local.call(self.calls, call, result);
        self.calls += 1;
        self
    }

    fn init(&mut self, id: u8, rank: u64, ranks: u64, address: u64) -> &mut Self {
        let call = shape(
            "ncclCommInitRank",
            &[
                ("id", Argument::Bytes([id; 16].into())),
                ("rank", Argument::Number(rank)),
                ("ranks", Argument::Number(ranks)),
                ("blocking", Argument::Number(1)),
            ],
        );
        self.call(&call, Some(&shape("ncclCommInitRank", &[("comm", Argument::Address(address))])))
    }

    fn split(&mut self, parent: u64, color: i64, key: i64, address: u64) -> &mut Self {
        let call = shape(
            "ncclCommSplit",
            &[
                ("comm", Argument::Address(parent)),
                ("color", Argument::Signed(color)),
                ("key", Argument::Signed(key)),
                ("share", Argument::Number(0)),
            ],
        );
        self.call(&call, Some(&shape("ncclCommSplit", &[("comm", Argument::Address(address))])))
    }

    fn destroy(&mut self, address: u64) -> &mut Self {
        self.call(&shape("ncclCommDestroy", &[("comm", Argument::Address(address))]), None)
    }
}

fn join(processes: Vec<ProcessFile>) -> Result<World, RunError> {
    let named = processes.into_iter().enumerate();
    World::join(
        named
            .map(|(at, process)| (PathBuf::from(format!("file{at}")), process.header, process.local))
            .collect(),
    )
}

fn ranks(ranks: &[u32]) -> Vec<Option<Rank>> {
    ranks.iter().map(|&rank| Some(Rank(rank))).collect()
}

#[test]
fn children_are_told_apart_by_their_parent_their_split_and_their_color() {
    let mut world: Vec<ProcessFile> = (0..4)
        .map(|rank| {
            let mut process = ProcessFile::new(Some(rank), Some(4));
            let (even, low) = (i64::from(rank % 2), i64::from(rank / 2));
            // Addresses are the process's own; keys turn the order around.
            process.init(1, rank.into(), 4, 0xa0 + u64::from(rank));
            process.split(0xa0 + u64::from(rank), even, -i64::from(rank), 0xb0);
            process.split(0xa0 + u64::from(rank), low, 0, 0xc0);
            process
        })
        .collect();
    // A child of a child, and one without a color.
    world[1].split(0xb0, 0, 0, 0xd0);
    world[3].split(0xb0, -1, 0, 0);
    let world = join(world).expect("one run");
    assert_eq!(world.ranks, 4);
    assert!(world.missing().is_empty());
    let at = |rank: u32, address: u64| {
        let member = world.member(Rank(rank)).expect("it is there");
        world.comm(member.comm_at(address, 100).expect("it lives"))
    };
    assert_eq!(at(2, 0xa2).members, ranks(&[0, 1, 2, 3]));
    assert_eq!(at(1, 0xb0).members, ranks(&[3, 1]));
    assert_eq!(at(2, 0xb0).members, ranks(&[2, 0]));
    assert_eq!(at(3, 0xc0).members, ranks(&[2, 3]));
    assert_eq!(at(1, 0xd0).members, ranks(&[1]));
    assert_eq!(at(1, 0xd0).name, "comm 01010101/0.1/0.0");
    assert!(at(1, 0xd0).whole);
}

#[test]
fn an_address_that_comes_back_is_another_communicator() {
    let process = |rank: u32| {
        let mut process = ProcessFile::new(Some(rank), Some(2));
        process.init(1, rank.into(), 2, 0xa0).destroy(0xa0).init(2, rank.into(), 2, 0xa0);
        process
    };
    let world = join(vec![process(0), process(1)]).expect("one run");
    let member = world.member(Rank(1)).expect("it is there");
    let [first, last, second] = [1, 2, 3].map(|call| member.comm_at(0xa0, call));
    assert_eq!(world.comm(first.expect("the call that destroys names it")).name, "comm 01010101");
    assert_eq!(last, None);
    assert_eq!(world.comm(second.expect("it lives again")).name, "comm 02020202");
}

#[test]
fn ranks_that_were_not_recorded_are_missing() {
    let process = |rank: u32| {
        let mut process = ProcessFile::new(Some(rank), None);
        process.init(1, rank.into(), 4, 0xa0);
        process
    };
    let world = join(vec![process(0), process(1), process(3)]).expect("one run");
    assert_eq!(world.missing(), [Rank(2)]);
    assert_eq!(world.comms[0].members, [Some(Rank(0)), Some(Rank(1)), None, Some(Rank(3))]);
    assert!(!world.comms[0].whole);
}

#[test]
fn without_a_launcher_the_largest_communicator_says_who_is_who() {
    let process = |rank: u32| {
        let mut process = ProcessFile::new(None, None);
        process.init(1, rank.into(), 2, 0xa0);
        process
    };
    let world = join(vec![process(1), process(0)]).expect("one run");
    assert_eq!(world.member(Rank(0)).expect("it is there").path, PathBuf::from("file1"));
    let mut alone = process(0);
    alone.local = CommListener::default();
    alone.init(2, 0, 7, 0xa0);
    let error = join(vec![process(0), alone]).expect_err("nobody knows").to_string();
    assert!(error.contains("does not say which rank it is"), "{error}");
}

#[test]
fn a_process_that_only_stands_by_is_no_second_rank() {
    let mut first = ProcessFile::new(Some(0), Some(1));
    first.init(1, 0, 1, 0xa0);
    let world = join(vec![ProcessFile::new(Some(0), Some(1)), first]).expect("one run");
    assert_eq!(world.bystanders, [PathBuf::from("file0")]);
    assert_eq!(world.members[0].file, 1);
}

/// A process of a run of two ranks that joins a communicator.
fn joined(rank: u32, id: u8, number: u64, size: u64) -> ProcessFile {
    let mut process = ProcessFile::new(Some(rank), Some(2));
    process.init(id, number, size, 0xa0);
    process
}

fn of_another_run(mut process: ProcessFile) -> ProcessFile {
    process.header.run = "two".to_owned();
    process
}

fn joined_again(mut process: ProcessFile) -> ProcessFile {
    process.init(1, 0, 2, 0xb0);
    process
}

#[rstest]
#[case::two_runs(of_another_run(joined(1, 1, 1, 2)), "two runs lie together")]
#[case::a_rank_twice(joined(0, 1, 1, 2), "both say that they are rank 0")]
#[case::a_place_twice(joined(1, 1, 0, 2), "joined communicator comm 01010101 as rank 0")]
#[case::two_sizes(joined(1, 1, 1, 3), "has 2 ranks according to file0 and 3")]
#[case::two_ranks_of_one(
    joined_again(joined(1, 1, 1, 2)),
    "a second rank of a communicator on one device of one process"
)]
fn mixed_up_directories_are_refused(#[case] second: ProcessFile, #[case] needle: &str) {
    let error = join(vec![joined(0, 1, 0, 2), second]).expect_err("mixed up").to_string();
    assert!(error.contains(needle), "{error}");
}

#[test]
fn numbers_out_of_all_bounds_ask_for_no_memory() {
    let mut process = ProcessFile::new(Some(0), Some(u32::MAX));
    process.init(1, 4_000_000_000, 4_294_967_295, 0xa0);
    let world = join(vec![process]).expect("one run");
    assert!(world.missing().len() < 1 << 21);
    assert!(world.comms[0].members.is_empty());
}

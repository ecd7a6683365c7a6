//! Recordings of a training run that never took place: tensor, pipeline and data parallel ranks, as large and
//! as long as wanted, written with the writer that the recorder uses.
//!
//! Every rank does the same iteration again and again, but for what real programs do differently: ranks begin
//! with irregular work of their own, buffers take turns with another period than the iterations, there is a
//! checkpoint now and then, and one rank may once do something else.
//! Not here: what is found in them.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rankcheck_recording::layout::encode_header;
use rankcheck_recording::value::{Field, Signature};
use rankcheck_recording::write::EventWriter;
use rankcheck_recording::{ExtentStream, Header};

/// What is trained, and for how long.
#[derive(Debug, Clone)]
pub struct Training {
    /// Ranks that share each layer.
    pub tensor: u32,
    /// Pipeline stages, each with layers of its own.
    pub pipeline: u32,
    /// Copies of the whole model.
    pub data: u32,
    /// Layers that each stage has.
    pub layers: u32,
    /// Microbatches that go through all stages in one iteration.
    pub microbatches: u32,
    /// How often all that is done.
    pub iterations: u64,
    /// Calls before the first iteration, other ones on every rank.
    pub irregular: u64,
    /// Iterations from one checkpoint to the next; 0 if there is none.
    pub checkpoint: u64,
    /// Whether the sizes of messages change from iteration to iteration, on all ranks alike.
    pub sizes: Sizes,
    /// Where one rank does something else.
    pub divergence: Option<Divergence>,
}

/// How large messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// They are the same in every iteration.
    Fixed,
    /// Out of so many, in an order that never repeats.
    Drawn(u64),
}

/// What one rank once does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divergence {
    /// The world rank that diverges.
    pub rank: u32,
    /// Who else does the same.
    pub with: DivergesWith,
    /// The iteration in which it diverges, from 0.
    pub iteration: u64,
    /// What it does there that the others do not.
    pub change: Change,
}

/// Who does what a rank does otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DivergesWith {
    /// Only the rank.
    Nobody,
    /// All ranks of its stage, in all copies.
    Stage,
    /// All ranks with its part of the layers, in all stages and copies.
    Part,
    /// All ranks of its copy of the model.
    Copy,
    /// All ranks.
    Everybody,
}

/// What is done otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The gradients are reduced with another count.
    OtherCount,
    /// The gradients are reduced twice.
    OnceMore,
    /// The gradients are not reduced.
    Never,
    /// The first message to the next stage, or from the one before, is left out.
    NoMessage,
    /// Two collectives of different communicators change places.
    OtherOrder,
    /// A kernel more: nobody else is concerned.
    OneKernelMore,
    /// What comes behind the last reduction does not wait for it: a checkpoint copies gradients while they are reduced.
    NoWait,
    /// The iteration is left out.
    NoIteration,
    /// The process is killed in the middle of the iteration.
    Killed,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            tensor: 2,
            pipeline: 2,
            data: 2,
            layers: 2,
            microbatches: 4,
            iterations: 50,
            irregular: 100,
            checkpoint: 0,
            sizes: Sizes::Fixed,
            divergence: None,
        }
    }
}

static INIT: Signature =
    Signature { name: "ncclCommInitRank", keys: &["id", "rank", "ranks", "blocking"], instant: false };
static SPLIT: Signature =
    Signature { name: "ncclCommSplit", keys: &["comm", "color", "key", "share"], instant: false };
static COMM: Signature = Signature { name: "ncclCommInitRank", keys: &["comm"], instant: false };
static CHILD: Signature = Signature { name: "ncclCommSplit", keys: &["comm"], instant: false };
static DESTROY: Signature = Signature { name: "ncclCommDestroy", keys: &["comm"], instant: false };
static REDUCE: Signature = Signature {
    name: "ncclAllReduce",
    keys: &["send", "recv", "count", "dtype", "op", "comm", "stream"],
    instant: false,
};
static SEND: Signature = Signature {
    name: "ncclSend",
    keys: &["address", "count", "dtype", "peer", "comm", "stream"],
    instant: false,
};
static RECV: Signature = Signature {
    name: "ncclRecv",
    keys: &["address", "count", "dtype", "peer", "comm", "stream"],
    instant: false,
};
static GROUP_START: Signature = Signature { name: "ncclGroupStart", keys: &[], instant: false };
static GROUP_END: Signature = Signature { name: "ncclGroupEnd", keys: &[], instant: false };
static MEM_ALLOC: Signature = Signature { name: "ncclMemAlloc", keys: &["bytes"], instant: false };
static ALLOCATED: Signature = Signature { name: "ncclMemAlloc", keys: &["address"], instant: false };
static REGISTER: Signature = Signature {
    name: "ncclCommWindowRegister",
    keys: &["comm", "address", "bytes", "flags"],
    instant: false,
};
static REGISTERED: Signature =
    Signature { name: "ncclCommWindowRegister", keys: &["window"], instant: false };
static MALLOC: Signature = Signature { name: "cudaMallocAsync", keys: &["bytes", "stream"], instant: false };
static MALLOCED: Signature = Signature { name: "cudaMallocAsync", keys: &["address"], instant: false };
static FREE: Signature = Signature { name: "cudaFreeAsync", keys: &["address", "stream"], instant: false };
static KERNEL: Signature =
    Signature { name: "cudaLaunchKernel", keys: &["function", "stream"], instant: false };
static RECORD: Signature = Signature { name: "cudaEventRecord", keys: &["event", "stream"], instant: false };
static WAIT: Signature =
    Signature { name: "cudaStreamWaitEvent", keys: &["stream", "event"], instant: false };
static COPY: Signature =
    Signature { name: "cudaMemcpyAsync", keys: &["to", "from", "bytes", "kind", "stream"], instant: false };
static SYNCHRONIZE: Signature =
    Signature { name: "cudaStreamSynchronize", keys: &["stream"], instant: false };
static EXIT: Signature = Signature { name: "exit", keys: &["code"], instant: true };

const COMPUTE: u64 = 0x11;
const COMMUNICATE: u64 = 0x12;
const MIB: u64 = 1 << 20;

impl Training {
    /// How many ranks train: one for each part of a stage of a copy.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.tensor * self.pipeline * self.data
    }

    /// Writes a file for each rank, and gives the number of calls of all.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<u64> {
        std::fs::create_dir_all(directory)?;
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let ranks: Vec<u32> = (0..self.ranks()).collect();
        std::thread::scope(|scope| {
            let shares: Vec<_> = ranks
                .chunks(ranks.len().div_ceil(workers).max(1))
                .map(|share| {
                    scope.spawn(move || {
                        share.iter().map(|&rank| self.write_rank(rank, directory)).sum::<io::Result<u64>>()
                    })
                })
                .collect();
            shares.into_iter().map(|share| share.join().expect("a writer does not panic")).sum()
        })
    }

    /// How many calls an iteration without checkpoint has.
    ///
    /// # Errors
    ///
    /// If it cannot be tried out: it is written to find out.
    pub fn calls_of_iteration(&self, directory: &Path) -> io::Result<u64> {
        let with = |iterations: u64| {
            let short = Self { iterations, checkpoint: 0, divergence: None, ..self.clone() };
            let calls = short.write_rank(0, directory);
            std::fs::remove_file(path(directory, 0))?;
            calls
        };
        std::fs::create_dir_all(directory)?;
        Ok(with(2)? - with(1)?)
    }

    fn write_rank(&self, rank: u32, directory: &Path) -> io::Result<u64> {
        let mut file = File::create(path(directory, rank))?;
        let header = Header {
            running: None,
            rank: Some(rank),
            ranks: Some(self.ranks()),
            pid: 1000 + rank,
            host: format!("host{}", rank / 8),
            command: vec!["python".to_owned(), "train.py".to_owned()],
            run: "a training that never took place".to_owned(),
            began: 0,
            recorder: "synthetic".to_owned(),
            alive: None,
            bytes: None,
            driver: true,
        };
        file.write_all(&encode_header(&header).expect("it is short"))?;
        let mut process = Process {
            training: self,
            rank,
            stage: rank / self.tensor % self.pipeline,
            writer: EventWriter::new(ExtentStream::new(file), 0, 0),
            time: 0,
            calls: 0,
            iteration: 0,
        };
        process.run();
        process.writer.into_space().end()?;
        Ok(process.calls)
    }
}

fn path(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("rank{rank:05}.rankrec"))
}

/// A process while it is written.
struct Process<'a> {
    training: &'a Training,
    rank: u32,
    stage: u32,
    writer: EventWriter<ExtentStream<File>>,
    time: u64,
    calls: u64,
    iteration: u64,
}

/// Addresses of communicators, the same in every process.
const WORLD: u64 = 0xc000;
const TENSOR: u64 = 0xc100;
const PIPELINE: u64 = 0xc200;
const DATA: u64 = 0xc300;
/// Memory that is registered as a window and reduced.
const GRADIENTS: u64 = 0x7f00_0000_0000;
const ACTIVATIONS: u64 = 0x7e00_0000_0000;

impl Process<'_> {
    fn call(&mut self, signature: &Signature, fields: &[Field<'_>]) {
        self.writer.call(self.time, signature, fields);
        self.writer.leave(self.time + 900);
        self.time += 1000;
        self.calls += 1;
    }

    fn call_with(
        &mut self,
        signature: &Signature,
        fields: &[Field<'_>],
        result: &Signature,
        values: &[Field<'_>],
    ) {
        self.writer.call(self.time, signature, fields);
        self.writer.leave_with(self.time + 900, result, values);
        self.time += 1000;
        self.calls += 1;
    }

    /// Whether this process does this now.
    fn changes(&self, change: Change) -> bool {
        let Training { tensor, pipeline, .. } = *self.training;
        let part = |rank: u32| rank % tensor;
        let stage = |rank: u32| rank / tensor % pipeline;
        let copy = |rank: u32| rank / tensor / pipeline;
        self.training.divergence.is_some_and(|divergence| {
            let (mine, its) = (self.rank, divergence.rank);
            let diverges = match divergence.with {
                DivergesWith::Nobody => mine == its,
                DivergesWith::Stage => stage(mine) == stage(its),
                DivergesWith::Part => part(mine) == part(its),
                DivergesWith::Copy => copy(mine) == copy(its),
                DivergesWith::Everybody => true,
            };
            diverges && divergence.iteration == self.iteration && divergence.change == change
        })
    }

    fn run(&mut self) {
        self.set_up();
        for iteration in 0..self.training.iterations {
            self.iteration = iteration;
            if self.changes(Change::NoIteration) {
                continue;
            }
            if self.iteration() == Flow::Killed {
                return;
            }
            if self.training.checkpoint > 0 && (iteration + 1) % self.training.checkpoint == 0 {
                self.checkpoint();
            }
        }
        for comm in [DATA, PIPELINE, TENSOR, WORLD] {
            self.call(&DESTROY, &[Field::Address(comm)]);
        }
        self.writer.enter(self.time, &EXIT, &[Field::Signed(0)]);
        self.calls += 1;
        self.writer.finish();
    }

    fn set_up(&mut self) {
        let Training { tensor, pipeline, .. } = *self.training;
        let ranks = self.training.ranks();
        self.call_with(
            &INIT,
            &[
                Field::Bytes(&[7; 16]),
                Field::Number(self.rank.into()),
                Field::Number(ranks.into()),
                Field::Number(1),
            ],
            &COMM,
            &[Field::Address(WORLD)],
        );
        let (column, row) = (self.rank % tensor, self.rank / tensor);
        let (stage, copy) = (row % pipeline, row / pipeline);
        let colors = [
            (TENSOR, i64::from(row)),
            (PIPELINE, i64::from(column + tensor * copy)),
            (DATA, i64::from(column + tensor * stage)),
        ];
        for (address, color) in colors {
            let fields = [
                Field::Address(WORLD),
                Field::Signed(color),
                Field::Signed(self.rank.into()),
                Field::Number(0),
            ];
            self.call_with(&SPLIT, &fields, &CHILD, &[Field::Address(address)]);
        }
        self.call_with(&MEM_ALLOC, &[Field::Number(64 * MIB)], &ALLOCATED, &[Field::Address(GRADIENTS)]);
        let fields =
            [Field::Address(DATA), Field::Address(GRADIENTS), Field::Number(64 * MIB), Field::Number(1)];
        self.call_with(&REGISTER, &fields, &REGISTERED, &[Field::Address(0xd000)]);
        let mut random = u64::from(self.rank) * 977 + 1;
        for _ in 0..self.training.irregular {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.kernel(random >> 58);
        }
    }

    fn kernel(&mut self, function: u64) {
        self.call(&KERNEL, &[Field::Address(0xf000 + function), Field::Address(COMPUTE)]);
    }

    /// Work of one stream waits for work of another.
    fn after(&mut self, first: u64, then: u64) {
        let event = Field::Varying(0xe000 + first);
        self.call(&RECORD, &[event, Field::Address(first)]);
        self.call(&WAIT, &[Field::Address(then), event]);
    }

    fn reduce(&mut self, comm: u64, address: u64, count: u64) {
        let fields = [
            Field::Address(address),
            Field::Address(address),
            Field::Number(count),
            Field::Number(7),
            Field::Number(0),
            Field::Address(comm),
            Field::Address(COMMUNICATE),
        ];
        self.call(&REDUCE, &fields);
    }

    fn message(&mut self, signature: &Signature, peer: u32, address: u64, count: u64) {
        let fields = [
            Field::Address(address),
            Field::Number(count),
            Field::Number(9),
            Field::Number(peer.into()),
            Field::Address(PIPELINE),
            Field::Address(COMMUNICATE),
        ];
        self.call(&GROUP_START, &[]);
        self.call(signature, &fields);
        self.call(&GROUP_END, &[]);
    }

    /// Elements of a message in this iteration; the same on all ranks.
    fn count(&self) -> u64 {
        match self.training.sizes {
            Sizes::Fixed => MIB,
            Sizes::Drawn(of) => {
                let mixed = (self.iteration + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                MIB - ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % of
            }
        }
    }

    fn iteration(&mut self) -> Flow {
        let Training { layers, microbatches, pipeline, .. } = *self.training;
        let count = self.count();
        // The allocator hands out three blocks in turn.
        let block = ACTIVATIONS + self.iteration % 3 * 16 * MIB;
        let stream = Field::Address(COMPUTE);
        self.call_with(&MALLOC, &[Field::Number(16 * MIB), stream], &MALLOCED, &[Field::Address(block)]);
        self.after(COMPUTE, COMMUNICATE);
        let mut silent = self.changes(Change::NoMessage);
        for forward in [true, false] {
            let (before, after) = if forward {
                (self.stage.checked_sub(1), Some(self.stage + 1).filter(|&next| next < pipeline))
            } else {
                (Some(self.stage + 1).filter(|&next| next < pipeline), self.stage.checked_sub(1))
            };
            for _ in 0..microbatches {
                if let Some(peer) = before.filter(|_| !std::mem::take(&mut silent)) {
                    self.message(&RECV, peer, block, count);
                    self.after(COMMUNICATE, COMPUTE);
                }
                for layer in 0..layers {
                    self.kernel(u64::from(layer) * 4 + u64::from(!forward));
                    self.kernel(u64::from(layer) * 4 + 2);
                    self.after(COMPUTE, COMMUNICATE);
                    self.reduce(TENSOR, block + u64::from(layer) * MIB, count);
                    self.after(COMMUNICATE, COMPUTE);
                }
                if let Some(peer) = after.filter(|_| !std::mem::take(&mut silent)) {
                    self.after(COMPUTE, COMMUNICATE);
                    self.message(&SEND, peer, block, count);
                }
            }
            if forward && self.changes(Change::Killed) {
                return Flow::Killed;
            }
        }
        if self.changes(Change::OneKernelMore) {
            self.kernel(63);
        }
        if self.changes(Change::OtherOrder) {
            self.reduce(WORLD, block, 1);
            self.reduce(DATA, GRADIENTS, 4 * MIB);
        } else {
            if self.changes(Change::OtherCount) {
                self.reduce(DATA, GRADIENTS, 4 * MIB - 1);
            } else if !self.changes(Change::Never) {
                self.reduce(DATA, GRADIENTS, 4 * MIB);
            }
            if self.changes(Change::OnceMore) {
                self.reduce(DATA, GRADIENTS, 4 * MIB);
            }
            self.reduce(WORLD, block, 1);
        }
        if !self.changes(Change::NoWait) {
            self.after(COMMUNICATE, COMPUTE);
        }
        self.call(&FREE, &[Field::Address(block), stream]);
        self.call(&SYNCHRONIZE, &[stream]);
        Flow::On
    }

    fn checkpoint(&mut self) {
        for part in 0..16 {
            let fields = [
                Field::Address(0x5000_0000 + part * MIB),
                Field::Address(GRADIENTS + part * MIB),
                Field::Number(MIB),
                Field::Number(2),
                Field::Address(COMPUTE),
            ];
            self.call(&COPY, &fields);
        }
        self.call(&SYNCHRONIZE, &[Field::Address(COMPUTE)]);
        self.reduce(WORLD, GRADIENTS, 1);
    }
}

/// How an iteration ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Killed,
}

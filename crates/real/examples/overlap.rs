//! Times two transfers between two devices, one in each direction: on one communicator, which runs its launches one
//! after the other on whichever streams, and on two, which do not. Prints milliseconds and their ratio.
//!
//! Not here: whether a program is right; the device has to be healthy and to have two GPUs.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use rankcheck_model::{Dtype, Resources};
use rankcheck_real::Error;
use rankcheck_real::collective::{Elements, receive, send};
use rankcheck_real::comm::NcclComm;
use rankcheck_real::event::CudaEvent;
use rankcheck_real::ffi::cuda::{Completion, Device};
use rankcheck_real::ffi::nccl::NcclUniqueId;
use rankcheck_real::ffi::{self, Libraries};
use rankcheck_real::memory::CudaMemory;
use rankcheck_real::stream::CudaStream;

const LEN_BYTES: u64 = 1 << 30;
const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(30);

/// What the two ranks share.
struct BothRanks {
    ids: [OnceLock<Vec<u8>>; 2],
    barrier: Barrier,
}

/// What one rank has.
struct Bench {
    rank: u32,
    streams: [CudaStream; 2],
    buffers: [CudaMemory; 2],
    /// Before both, behind each.
    marks: [CudaEvent; 3],
}

fn main() -> io::Result<ExitCode> {
    let mut out = io::stdout();
    let libraries = match ffi::probe().require() {
        Ok(libraries) => libraries,
        Err(error) => {
            writeln!(out, "{error}")?;
            return Ok(ExitCode::from(4));
        }
    };
    let meeting = BothRanks { ids: [OnceLock::new(), OnceLock::new()], barrier: Barrier::new(2) };
    let results = std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let (libraries, meeting) = (&libraries, &meeting);
            scope.spawn(move || run(libraries, meeting, rank))
        });
        ranks.map(|rank| rank.join())
    });
    for (rank, result) in results.into_iter().enumerate() {
        match result {
            Ok(Ok((serialized, overlapped))) => {
                let ratio = serialized / overlapped;
                writeln!(
                    out,
                    "rank {rank}: serialized {serialized:.2} ms, overlapped {overlapped:.2} ms, ratio {ratio:.2}"
                )?;
            }
            Ok(Err(error)) => {
                writeln!(out, "rank {rank}: {error}")?;
                return Ok(ExitCode::FAILURE);
            }
            Err(_) => return Ok(ExitCode::FAILURE),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The best of some rounds, in milliseconds: on one communicator, on two.
fn run(libraries: &Libraries, meeting: &BothRanks, rank: u32) -> Result<(f32, f32), Error> {
    let device = Device::open(libraries, i32::try_from(rank).expect("two ranks"))?;
    let comms =
        [comm(libraries, meeting, &device, (rank, 0))?, comm(libraries, meeting, &device, (rank, 1))?];
    let bench = Bench {
        rank,
        streams: [CudaStream::create(&device)?, CudaStream::create(&device)?],
        buffers: [CudaMemory::alloc(&device, LEN_BYTES)?, CudaMemory::alloc(&device, LEN_BYTES)?],
        marks: [
            CudaEvent::create_timed(&device)?,
            CudaEvent::create_timed(&device)?,
            CudaEvent::create_timed(&device)?,
        ],
    };
    for comm in &comms {
        comm.warm_up(libraries, &device, &bench.streams[0])?;
    }
    let mut best = (f32::MAX, f32::MAX);
    for _ in 0..ROUNDS {
        meeting.barrier.wait();
        best.0 = best.0.min(bench.both_directions(&comms[0], &comms[0])?);
        meeting.barrier.wait();
        best.1 = best.1.min(bench.both_directions(&comms[0], &comms[1])?);
    }
    meeting.barrier.wait();
    let Bench { streams, buffers, marks, .. } = bench;
    for comm in comms {
        comm.end()?;
    }
    marks.into_iter().try_for_each(CudaEvent::end)?;
    buffers.into_iter().try_for_each(CudaMemory::end)?;
    streams.into_iter().try_for_each(CudaStream::end)?;
    device.end()?;
    Ok(best)
}

fn comm(
    libraries: &Libraries,
    meeting: &BothRanks,
    device: &Device,
    (rank, nth): (u32, usize),
) -> Result<NcclComm, Error> {
    if rank == 0 {
        let bytes = NcclUniqueId::create(libraries)?.bytes();
        meeting.ids[nth].get_or_init(|| bytes);
    }
    meeting.barrier.wait();
    let bytes = meeting.ids[nth].get().expect("rank 0 made it before it came to the barrier");
    let id = NcclUniqueId::from_bytes(bytes).expect("as long as an id is");
    let made = NcclComm::init_rank(device, &id, rank, 2, Resources::Own)?.take()?;
    made.ok_or_else(|| Error::Malformed { what: "NCCL made no communicator".to_owned() })
}

impl Bench {
    /// Rank 0 sends on the first communicator and receives on the second, rank 1 the other way round, each on two
    /// streams. Gives the milliseconds from the start of the first to the end of the last.
    fn both_directions(&self, there: &NcclComm, back: &NcclComm) -> Result<f32, Error> {
        let elements = Elements { count: LEN_BYTES / Dtype::F32.len_bytes(), dtype: Dtype::F32 };
        let [first, second] = &self.streams;
        let [x, y] = [self.buffers[0].range(), self.buffers[1].range()];
        let peer = 1 - self.rank;
        self.marks[0].record(first)?;
        second.wait(&self.marks[0])?;
        if self.rank == 0 {
            send(there, &x, elements, peer, first)?;
            receive(back, &y, elements, peer, second)?;
        } else {
            receive(there, &y, elements, peer, first)?;
            send(back, &x, elements, peer, second)?;
        }
        self.marks[1].record(first)?;
        self.marks[2].record(second)?;
        let start = Instant::now();
        for stream in &self.streams {
            while stream.query()? == Completion::Pending {
                if start.elapsed() > LIMIT {
                    return Err(Error::TimedOut { what: "a transfer".to_owned(), after: LIMIT });
                }
                std::thread::yield_now();
            }
        }
        let ends = [
            self.marks[1].milliseconds_since(&self.marks[0])?,
            self.marks[2].milliseconds_since(&self.marks[0])?,
        ];
        Ok(ends[0].max(ends[1]))
    }
}

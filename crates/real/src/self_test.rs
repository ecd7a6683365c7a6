//! What a device has to do right before programs are run on it, step by step.
//!
//! Not here: NCCL between ranks, which needs several processes.

mod alone;

use std::time::{Duration, Instant};

use rankcheck_model::Dtype;

use crate::Error;
use crate::case::CommHistory;
use crate::event::CudaEvent;
use crate::ffi::cuda::{Completion, Device, Pinned};
use crate::ffi::{DeviceRange, Libraries};
use crate::kernel::{ComputeType, DeviceCode, Gate};
use crate::memory::CudaMemory;
use crate::placement::AddressSlots;
use crate::segment::NcclSegment;
use crate::stream::CudaStream;

const LEN_BYTES: u64 = 1 << 20;

/// Runs every step on a device; `step` gets the name of each one that worked.
///
/// # Errors
/// The first step that failed: [`Error::Differs`] for wrong results, else what the call returned.
pub fn self_test(libraries: &Libraries, ordinal: i32, mut step: impl FnMut(&str)) -> Result<(), Error> {
    let device = Device::open(libraries, ordinal)?;
    step("a context");
    let kernels = DeviceCode::load(&device)?;
    step("device code is compiled and loaded");
    let stream = CudaStream::create(&device)?;
    let bench = OneDevice { device: &device, kernels: &kernels, stream: &stream };
    bench.compute()?;
    step("fills and kernels, in four element types, copied back");
    bench.scratch()?;
    step("a kernel with five inputs and two outputs");
    bench.events()?;
    step("an event is pending while its stream spins, and complete afterwards");
    let placement = AddressSlots::reserve(&device)?;
    bench.place(&placement)?;
    step("placed segments at two addresses, and at one of them again");
    placement.end()?;
    let segment = NcclSegment::alloc(&device, LEN_BYTES)?;
    bench.holds(&segment.range(), ComputeType::F32, 11)?;
    segment.end()?;
    step("a segment of ncclMemAlloc");
    stream.end()?;
    kernels.end()?;
    device.end()?;
    step("everything given back");
    alone::run_alone(libraries, ordinal, CommHistory::Fresh)?;
    step("a program of one rank, with forced values");
    alone::run_alone(libraries, ordinal, CommHistory::Warm)?;
    step("the same with a communicator that is warmed up and kept");
    Ok(())
}

struct OneDevice<'a> {
    device: &'a Device,
    kernels: &'a DeviceCode,
    stream: &'a CudaStream,
}

impl OneDevice<'_> {
    fn drain(&self) -> Result<(), Error> {
        let limit = Duration::from_secs(10);
        let start = Instant::now();
        while self.stream.query()? == Completion::Pending {
            if start.elapsed() > limit {
                return Err(Error::TimedOut { what: "the stream".to_owned(), after: limit });
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn expect(
        &self,
        what: &'static str,
        range: &DeviceRange,
        (element, number): (ComputeType, u32),
    ) -> Result<(), Error> {
        let mut staging = Pinned::alloc(self.device, usize::try_from(LEN_BYTES).expect("a megabyte"))?;
        assert!(range.len_bytes() <= staging.len() as u64, "the ranges are as long as the staging memory");
        let bytes = staging.read(range, &self.stream.owner, |_| self.drain())?;
        let size = usize::try_from(element.len_bytes()).expect("a few bytes");
        let wrong =
            bytes.chunks_exact(size).map(|chunk| element.number(chunk)).find(|n| *n != f64::from(number));
        staging.end()?;
        match wrong {
            None => Ok(()),
            Some(found) => {
                Err(Error::Differs { what, expected: number.to_string(), found: found.to_string() })
            }
        }
    }

    /// Fills a range and reads it back.
    fn holds(&self, range: &DeviceRange, element: ComputeType, number: u32) -> Result<(), Error> {
        self.kernels.fill(range, (element, number), self.stream)?;
        self.expect("a fill", range, (element, number))
    }

    fn compute(&self) -> Result<(), Error> {
        let memory = CudaMemory::alloc(self.device, 2 * LEN_BYTES)?;
        let half = |at: u64| memory.range().slice(at * LEN_BYTES, LEN_BYTES).expect("two halves");
        let (a, b) = (half(0), half(1));
        for dtype in [Dtype::F32, Dtype::F64, Dtype::I32, Dtype::I64] {
            let element = ComputeType::of(dtype);
            self.holds(&a, element, 7)?;
            self.holds(&b, element, 100)?;
            self.kernels.combine(&a, &[a, b], (element, 1000), self.stream)?;
            self.expect("a kernel in place", &a, (element, 1107))?;
            // An input of one element is read over and over.
            let one = b.slice(0, element.len_bytes()).expect("one element");
            self.kernels.combine(&a, &[one], (element, 1), self.stream)?;
            self.expect("a kernel with a short input", &a, (element, 101))?;
        }
        self.stream.fill_bytes(&a, 0xA5)?;
        self.stream.copy(&b, &a)?;
        self.expect("a copy", &a, (ComputeType::I64, 100))?;
        memory.end()
    }

    fn scratch(&self) -> Result<(), Error> {
        let memory = CudaMemory::alloc(self.device, 8 * LEN_BYTES)?;
        let part = |at: u64| memory.range().slice(at * LEN_BYTES, LEN_BYTES).expect("eight parts");
        let element = ComputeType::F32;
        for nth in 0..5 {
            self.holds(&part(nth), element, 1 << nth)?;
        }
        let reads: Vec<DeviceRange> = (0..5).map(part).collect();
        // One output is an input too.
        let writes = [part(0), part(5)];
        self.kernels.run((&reads, &writes), Some(&part(7)), (element, 1000), self.stream)?;
        for out in &writes {
            self.expect("a kernel with scratch memory", out, (element, 1031))?;
        }
        memory.end()
    }

    fn events(&self) -> Result<(), Error> {
        let (gate, event) = (Gate::create(self.device)?, CudaEvent::create(self.device)?);
        let other = CudaStream::create(self.device)?;
        self.kernels.spin(&gate, 1, 5_000_000_000, self.stream)?;
        event.record(self.stream)?;
        other.wait(&event)?;
        let before = (event.query()?, other.query()?);
        gate.open(1);
        self.drain()?;
        let after = event.query()?;
        while other.query()? == Completion::Pending {
            std::thread::yield_now();
        }
        let result = match (before, after) {
            ((Completion::Pending, Completion::Pending), Completion::Complete) => Ok(()),
            (before, after) => Err(Error::Differs {
                what: "an event",
                expected: "pending, then complete".to_owned(),
                found: format!("{before:?}, then {after:?}"),
            }),
        };
        other.end()?;
        event.end()?;
        gate.end()?;
        result
    }

    fn place(&self, placement: &AddressSlots) -> Result<(), Error> {
        let (low, high) = (placement.address(1), placement.address(2));
        // The higher address first: the driver would have gone upwards.
        let second = placement.place(self.device, high, LEN_BYTES)?;
        let first = placement.place(self.device, low, LEN_BYTES)?;
        self.holds(&second.range(), ComputeType::F32, 2)?;
        self.holds(&first.range(), ComputeType::F32, 1)?;
        self.expect("the other segment", &second.range(), (ComputeType::F32, 2))?;
        if (first.range().address(), second.range().address()) != (low, high) {
            return Err(Error::Address { address: low, len_bytes: LEN_BYTES });
        }
        second.end()?;
        let again = placement.place(self.device, high, LEN_BYTES)?;
        self.holds(&again.range(), ComputeType::I64, 3)?;
        again.end()?;
        first.end()
    }
}

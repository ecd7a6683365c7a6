//! Device code: fills, the kernel of programs, and a spin. Written as PTX, which the driver compiles.
//!
//! Every function walks its elements with the stride of the whole grid, so any grid is right.
//! Not here: which numbers are written.

use std::ffi::{CStr, CString};

use rankcheck_model::Dtype;

use crate::Error;
use crate::ffi::DeviceRange;
use crate::ffi::cuda::{Device, Pinned};
use crate::ffi::kernel::{self, Function, Module};
use crate::stream::CudaStream;

/// Inputs that one launch adds.
const INPUTS: usize = 4;
/// Threads of a block.
const THREADS: u32 = 256;
/// Blocks of the largest grid: enough to fill a device, few enough to leave room for other kernels.
const BLOCKS: u64 = 264;

/// What all functions share.
const HEAD: &str = "
.version 7.0
.target sm_80
.address_size 64
";

/// `out[i] = value`, for 32 and 64 bits: `TYPE` is the width, `SIZE` the bytes of an element.
const FILL: &str = "
.visible .entry fill_uTYPE(
    .param .u64 p_out,
    .param .u64 p_count,
    .param .uTYPE p_value
)
{
    .reg .pred %done;
    .reg .b32 %block, %threads, %thread, %blocks;
    .reg .b64 %out, %count, %i, %lane, %stride, %at;
    .reg .bTYPE %value;

    ld.param.u64 %out, [p_out];
    ld.param.u64 %count, [p_count];
    ld.param.uTYPE %value, [p_value];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    cvt.u64.u32 %lane, %thread;
    mad.wide.u32 %i, %block, %threads, %lane;
    mul.wide.u32 %stride, %blocks, %threads;
FILL_NEXT:
    setp.ge.u64 %done, %i, %count;
    @%done bra FILL_END;
    mad.lo.u64 %at, %i, SIZE, %out;
    st.uTYPE [%at], %value;
    add.u64 %i, %i, %stride;
    bra FILL_NEXT;
FILL_END:
    ret;
}
";

/// `out[i] = base + in0[i mod len0] + …`: `TYPE` is the type, `SIZE` the bytes of an element. A length of 0 ends the
/// list of inputs. An element is read and written by one thread, so the output may be an input.
const COMBINE: &str = "
.visible .entry combine_TYPE(
    .param .u64 p_out,
    .param .u64 p_count,
    .param .TYPE p_base,
    .param .u64 p_in0,
    .param .u64 p_len0,
    .param .u64 p_in1,
    .param .u64 p_len1,
    .param .u64 p_in2,
    .param .u64 p_len2,
    .param .u64 p_in3,
    .param .u64 p_len3
)
{
    .reg .pred %done;
    .reg .b32 %block, %threads, %thread, %blocks;
    .reg .b64 %out, %count, %i, %lane, %stride, %at, %element;
    .reg .b64 %in0, %in1, %in2, %in3, %len0, %len1, %len2, %len3;
    .reg .TYPE %base, %sum, %term;

    ld.param.u64 %out, [p_out];
    ld.param.u64 %count, [p_count];
    ld.param.TYPE %base, [p_base];
    ld.param.u64 %in0, [p_in0];
    ld.param.u64 %len0, [p_len0];
    ld.param.u64 %in1, [p_in1];
    ld.param.u64 %len1, [p_len1];
    ld.param.u64 %in2, [p_in2];
    ld.param.u64 %len2, [p_len2];
    ld.param.u64 %in3, [p_in3];
    ld.param.u64 %len3, [p_len3];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    cvt.u64.u32 %lane, %thread;
    mad.wide.u32 %i, %block, %threads, %lane;
    mul.wide.u32 %stride, %blocks, %threads;
COMBINE_NEXT:
    setp.ge.u64 %done, %i, %count;
    @%done bra COMBINE_END;
    mov.TYPE %sum, %base;
    setp.eq.u64 %done, %len0, 0;
    @%done bra COMBINE_STORE;
    rem.u64 %element, %i, %len0;
    mad.lo.u64 %at, %element, SIZE, %in0;
    ld.TYPE %term, [%at];
    add.TYPE %sum, %sum, %term;
    setp.eq.u64 %done, %len1, 0;
    @%done bra COMBINE_STORE;
    rem.u64 %element, %i, %len1;
    mad.lo.u64 %at, %element, SIZE, %in1;
    ld.TYPE %term, [%at];
    add.TYPE %sum, %sum, %term;
    setp.eq.u64 %done, %len2, 0;
    @%done bra COMBINE_STORE;
    rem.u64 %element, %i, %len2;
    mad.lo.u64 %at, %element, SIZE, %in2;
    ld.TYPE %term, [%at];
    add.TYPE %sum, %sum, %term;
    setp.eq.u64 %done, %len3, 0;
    @%done bra COMBINE_STORE;
    rem.u64 %element, %i, %len3;
    mad.lo.u64 %at, %element, SIZE, %in3;
    ld.TYPE %term, [%at];
    add.TYPE %sum, %sum, %term;
COMBINE_STORE:
    mad.lo.u64 %at, %i, SIZE, %out;
    st.TYPE [%at], %sum;
    add.u64 %i, %i, %stride;
    bra COMBINE_NEXT;
COMBINE_END:
    ret;
}
";

/// Waits until the word is at least `ticket`, or until `limit` nanoseconds have passed.
const SPIN: &str = "
.visible .entry spin(
    .param .u64 p_word,
    .param .u32 p_ticket,
    .param .u64 p_limit
)
{
    .reg .pred %done;
    .reg .b32 %ticket, %seen;
    .reg .b64 %word, %limit, %start, %now;

    ld.param.u64 %word, [p_word];
    ld.param.u32 %ticket, [p_ticket];
    ld.param.u64 %limit, [p_limit];
    mov.u64 %start, %globaltimer;
SPIN_NEXT:
    ld.volatile.u32 %seen, [%word];
    setp.ge.u32 %done, %seen, %ticket;
    @%done bra SPIN_END;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %done, %now, %limit;
    @%done bra SPIN_NEXT;
SPIN_END:
    ret;
}
";

fn text() -> CString {
    let mut text = HEAD.to_owned();
    for (name, bytes) in [("32", "4"), ("64", "8")] {
        text += &FILL.replace("TYPE", name).replace("SIZE", bytes);
    }
    for (name, bytes) in [("f32", "4"), ("f64", "8"), ("s32", "4"), ("s64", "8")] {
        text += &COMBINE.replace("TYPE", name).replace("SIZE", bytes);
    }
    text += SPIN;
    CString::new(text).expect("the text has no zero byte")
}

/// The types that fills and kernels compute in. Other element types are computed as `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComputeType {
    /// 32-bit floating point, in which element types without a type here are computed too.
    F32,
    /// 64-bit floating point, for [`Dtype::F64`] alone.
    F64,
    /// 32-bit integer, for [`Dtype::I32`] alone.
    I32,
    /// 64-bit integer, for [`Dtype::I64`] alone.
    I64,
}

impl ComputeType {
    /// The type for an element type of NCCL.
    #[must_use]
    pub fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F64 => Self::F64,
            Dtype::I32 => Self::I32,
            Dtype::I64 => Self::I64,
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::I8 | Dtype::U8 | Dtype::Fp8 | Dtype::Invalid => {
                Self::F32
            }
        }
    }

    /// Returns the size of an element in bytes.
    #[must_use]
    pub fn len_bytes(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// The bits of a number, in the low bytes.
    #[must_use]
    pub fn bits(self, number: u32) -> u64 {
        match self {
            // Numbers of programs are far below 2^24, so that they are exact.
            Self::F32 => u64::from((number as f32).to_bits()),
            Self::F64 => f64::from(number).to_bits(),
            Self::I32 | Self::I64 => u64::from(number),
        }
    }

    /// The number that bytes hold, lowest byte first; `bytes` is one element.
    ///
    /// # Panics
    /// If there are fewer bytes than an element has.
    #[must_use]
    pub fn number(self, bytes: &[u8]) -> f64 {
        let four = || bytes[..4].try_into().expect("four bytes");
        let eight = || bytes[..8].try_into().expect("eight bytes");
        match self {
            Self::F32 => f64::from(f32::from_le_bytes(four())),
            Self::F64 => f64::from_le_bytes(eight()),
            Self::I32 => f64::from(i32::from_le_bytes(four())),
            // Beyond 2^53 neighbours are not told apart.
            Self::I64 => i64::from_le_bytes(eight()) as f64,
        }
    }
}

/// The device code, compiled and loaded, and its functions.
#[derive(Debug)]
pub struct DeviceCode {
    module: Module,
    fill: [Function; 2],
    combine: [Function; 4],
    spin: Function,
}

/// A word of the host that spinning kernels wait for.
#[derive(Debug)]
pub struct Gate {
    word: Pinned,
}

impl Gate {
    /// A word of value 0.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn create(device: &Device) -> Result<Self, Error> {
        Ok(Self { word: Pinned::alloc(device, 4096)? })
    }

    /// Lets every kernel go that waits for `ticket` or less.
    pub fn open(&self, ticket: u32) {
        self.word.write_word(ticket);
    }

    /// Gives the memory back. No kernel may wait any more.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        self.word.end()
    }
}

impl DeviceCode {
    /// Compiles and loads the functions for the current device.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn load(device: &Device) -> Result<Self, Error> {
        let module = Module::load(device, &text())?;
        let function = |name: &CStr| module.function(name);
        let fill = [function(c"fill_u32")?, function(c"fill_u64")?];
        let combine = [
            function(c"combine_f32")?,
            function(c"combine_f64")?,
            function(c"combine_s32")?,
            function(c"combine_s64")?,
        ];
        let spin = function(c"spin")?;
        Ok(Self { module, fill, combine, spin })
    }

    /// Writes a number into every element of the range; a rest shorter than an element is left alone.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn fill(
        &self,
        range: &DeviceRange,
        (element, number): (ComputeType, u32),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let count = range.len_bytes() / element.len_bytes();
        if count == 0 {
            return Ok(());
        }
        let function = if element.len_bytes() == 4 { self.fill[0] } else { self.fill[1] };
        let parameters = &mut [range.address(), count, element.bits(number)];
        kernel::launch(function, grid(count), &stream.owner, parameters)
    }

    /// `out[i] = number + Σ in[i mod len(in)]` over at most four inputs, which may be the output or parts of
    /// it that start where it starts.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// With more inputs.
    pub fn combine(
        &self,
        out: &DeviceRange,
        inputs: &[DeviceRange],
        (element, number): (ComputeType, u32),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        assert!(inputs.len() <= INPUTS, "at most four inputs");
        let count = out.len_bytes() / element.len_bytes();
        if count == 0 {
            return Ok(());
        }
        let mut parameters = vec![out.address(), count, element.bits(number)];
        // An input without a whole element adds nothing, and a length of 0 would end the list.
        for input in inputs.iter().filter(|input| input.len_bytes() >= element.len_bytes()) {
            parameters.extend([input.address(), input.len_bytes() / element.len_bytes()]);
        }
        parameters.resize(3 + 2 * INPUTS, 0);
        let function = match element {
            ComputeType::F32 => self.combine[0],
            ComputeType::F64 => self.combine[1],
            ComputeType::I32 => self.combine[2],
            ComputeType::I64 => self.combine[3],
        };
        kernel::launch(function, grid(count), &stream.owner, &mut parameters)
    }

    /// The kernel of a program: every output becomes `number + Σ inputs`, all inputs read before any output
    /// is written. `scratch` has the length of the longest output; without one there may be a single output,
    /// and at most four inputs.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    ///
    /// # Panics
    /// With more of them and no scratch memory.
    pub fn run(
        &self,
        (reads, writes): (&[DeviceRange], &[DeviceRange]),
        scratch: Option<&DeviceRange>,
        (element, number): (ComputeType, u32),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let Some(scratch) = scratch else {
            assert!(!needs_scratch(reads, writes), "memory for the sum was given");
            return match writes {
                [out] => self.combine(out, reads, (element, number), stream),
                _ => Ok(()),
            };
        };
        let mut parts = reads.chunks(INPUTS - 1);
        let first = parts.next().unwrap_or_default();
        self.combine(scratch, first, (element, number), stream)?;
        for part in parts {
            let inputs: Vec<DeviceRange> = std::iter::once(*scratch).chain(part.iter().copied()).collect();
            self.combine(scratch, &inputs, (element, 0), stream)?;
        }
        for out in writes {
            stream.copy(scratch, out)?;
        }
        Ok(())
    }

    /// Keeps the stream busy until the gate is opened for `ticket`, or for `limit_nanoseconds`.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn spin(
        &self,
        gate: &Gate,
        ticket: u32,
        limit_nanoseconds: u64,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let parameters = &mut [gate.word.address(), u64::from(ticket), limit_nanoseconds];
        kernel::launch(self.spin, (1, 1), &stream.owner, parameters)
    }

    /// Unloads the functions. Nothing may run any more.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn end(self) -> Result<(), Error> {
        self.module.end()
    }
}

/// Whether [`DeviceCode::run`] needs scratch memory: for several outputs, for many inputs, and where an output
/// overlaps an input that does not start with it, so that elements would be read after they were written.
#[must_use]
pub fn needs_scratch(reads: &[DeviceRange], writes: &[DeviceRange]) -> bool {
    let end = |range: &DeviceRange| range.address() + range.len_bytes();
    let unsafe_in_place = |out: &DeviceRange| {
        reads.iter().any(|input| {
            let overlaps = input.address() < end(out) && out.address() < end(input);
            let same = input.address() == out.address() && input.len_bytes() >= out.len_bytes();
            overlaps && !same
        })
    };
    writes.len() > 1 || reads.len() > INPUTS || writes.iter().any(unsafe_in_place)
}

fn grid(count: u64) -> (u32, u32) {
    let blocks = count.div_ceil(u64::from(THREADS)).clamp(1, BLOCKS);
    (u32::try_from(blocks).expect("clamped"), THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_in_the_text_once() {
        let text = text().into_string().expect("PTX is ASCII");
        for name in
            ["fill_u32", "fill_u64", "combine_f32", "combine_f64", "combine_s32", "combine_s64", "spin"]
        {
            assert_eq!(text.matches(&format!(".entry {name}(")).count(), 1, "{name}\n{text}");
        }
        assert!(!text.contains("TYPE") && !text.contains("SIZE"));
    }

    #[test]
    fn numbers_survive_their_bits() {
        for element in [ComputeType::F32, ComputeType::F64, ComputeType::I32, ComputeType::I64] {
            assert_eq!(element.number(&element.bits(4093).to_le_bytes()), 4093.0, "{element:?}");
        }
    }

    #[test]
    fn an_output_that_is_its_input_needs_no_scratch_memory() {
        let (a, b) = (DeviceRange::new(0, 1024), DeviceRange::new(512, 1024));
        assert!(!needs_scratch(&[a], &[a]));
        assert!(needs_scratch(&[a], &[b]));
        assert!(needs_scratch(&[], &[a, b]));
    }
}

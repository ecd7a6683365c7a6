//! What copies of rows touch, and nodes of graphs: read from the vendor's structures.
//!
//! A structure is read as numbers of eight bytes, at the places that `cuda.h` and `driver_types.h` of CUDA 12 and 13
//! give them. Not here: the calls that take them.

use libc::c_void;
use rankcheck_recording::Field;

use super::calls::{NumericAddress, ToField, at};
use super::find::Library;

/// Pieces of one length, in rows of one distance, in planes of one distance: address, bytes, distance of rows, rows,
/// distance of planes, planes.
pub(super) struct Strips([u8; 48]);

impl ToField for Strips {
    fn field(&self) -> Field<'_> {
        Field::Bytes(&self.0)
    }
}

/// Which side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopySide {
    From,
    To,
}

/// Rows of a plane.
pub(super) fn rows(address: u64, bytes: u64, pitch: u64, rows: u64) -> Strips {
    planes(address, [bytes, rows, 1], [pitch, 0])
}

/// Where nothing is that has an address.
fn nothing() -> Strips {
    planes(0, [0; 3], [0; 2])
}

fn planes(address: u64, [bytes, rows, planes]: [u64; 3], [pitch, plane]: [u64; 2]) -> Strips {
    let mut out = [0; 48];
    for (to, number) in out.chunks_exact_mut(8).zip([address, bytes, pitch, rows, plane, planes]) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    Strips(out)
}

/// The first byte of a part of a pitched array.
fn within(address: u64, [x, y, z]: [u64; 3], pitch: u64, height: u64) -> u64 {
    let rows = z.wrapping_mul(height).wrapping_add(y);
    address.wrapping_add(rows.wrapping_mul(pitch)).wrapping_add(x)
}

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_ARRAY`; the others name an address of the device.
const HOST: u64 = 1;
const ARRAY: u64 = 3;

/// One side of a `CUDA_MEMCPY2D`.
///
/// # Safety
///
/// It is null, or one.
pub(super) unsafe fn driver_2d(copy: *const c_void, side: CopySide) -> Option<Strips> {
    // SAFETY: said above.
    let words = unsafe { at(copy.cast::<[u64; 16]>()) }?;
    let [x, y, kind, host, device, _, pitch] =
        *words[7 * usize::from(side == CopySide::To)..].first_chunk()?;
    if kind & 0xffff_ffff == ARRAY {
        return Some(nothing());
    }
    let base = if kind & 0xffff_ffff == HOST { host } else { device };
    Some(rows(within(base, [x, y, 0], pitch, 0), words[14], pitch, words[15]))
}

/// One side of a `CUDA_MEMCPY3D` or a `CUDA_MEMCPY3D_PEER`.
///
/// # Safety
///
/// It is null, or one.
pub(super) unsafe fn driver_3d(copy: *const c_void, side: CopySide) -> Option<Strips> {
    // SAFETY: said above.
    let words = unsafe { at(copy.cast::<[u64; 25]>()) }?;
    let [x, y, z, _, kind, host, device, _, _, pitch, height] =
        *words[11 * usize::from(side == CopySide::To)..].first_chunk()?;
    if kind & 0xffff_ffff == ARRAY {
        return Some(nothing());
    }
    let base = if kind & 0xffff_ffff == HOST { host } else { device };
    let sizes = *words.last_chunk()?;
    Some(planes(within(base, [x, y, z], pitch, height), sizes, [pitch, pitch.wrapping_mul(height)]))
}

/// One side of a `cudaMemcpy3DParms`. With an array on either side the width is in its elements, whose size is not told.
///
/// # Safety
///
/// It is null, or one.
pub(super) unsafe fn runtime_3d(copy: *const c_void, side: CopySide) -> Option<Strips> {
    // SAFETY: said above.
    let words = unsafe { at(copy.cast::<[u64; 19]>()) }?;
    let (from, to) = (words.first_chunk()?, words[8..].first_chunk()?);
    runtime_side(from, to, *words[16..].first_chunk()?, side)
}

/// One side of a `cudaMemcpy3DPeerParms`.
///
/// # Safety
///
/// It is null, or one.
pub(super) unsafe fn runtime_3d_peer(copy: *const c_void, side: CopySide) -> Option<Strips> {
    // SAFETY: said above.
    let words = unsafe { at(copy.cast::<[u64; 21]>()) }?;
    let (from, to) = (words.first_chunk()?, words[9..].first_chunk()?);
    runtime_side(from, to, *words[18..].first_chunk()?, side)
}

fn runtime_side(from: &[u64; 8], to: &[u64; 8], sizes: [u64; 3], side: CopySide) -> Option<Strips> {
    let [array, x, y, z, base, pitch, _, height] = *if side == CopySide::From { from } else { to };
    if array != 0 {
        return Some(nothing());
    }
    if from[0] != 0 || to[0] != 0 {
        return None;
    }
    Some(planes(within(base, [x, y, z], pitch, height), sizes, [pitch, pitch.wrapping_mul(height)]))
}

/// What a `CUDA_MEMSET_NODE_PARAMS` or a `cudaMemsetParams` writes.
///
/// # Safety
///
/// It is null, or one.
pub(super) unsafe fn filled(fill: *const c_void) -> Option<Strips> {
    // SAFETY: said above.
    let [address, pitch, value_and_size, width, height] = unsafe { at(fill.cast::<[u64; 5]>()) }?;
    Some(rows(address, width.wrapping_mul(value_and_size >> 32), pitch, height))
}

/// The nodes at an address, eight bytes each; none where there are too many to write down.
///
/// # Safety
///
/// It is null, or as many nodes lie there.
pub(super) unsafe fn nodes(list: *const *mut c_void, count: usize) -> Option<Vec<u8>> {
    const MANY: usize = 1024;
    if list.is_null() || count == 0 {
        return Some(Vec::new());
    }
    // SAFETY: said above.
    let nodes = (count <= MANY).then(|| unsafe { std::slice::from_raw_parts(list, count) })?;
    Some(nodes.iter().flat_map(|node| (node.addr() as u64).to_le_bytes()).collect())
}

/// The ends of new edges. Later versions have what belongs to the edges before the count; where that is null, an earlier
/// version would have none.
///
/// # Safety
///
/// The arguments are as the vendor wants them.
pub(super) unsafe fn ends(list: *const *mut c_void, fourth: usize, fifth: usize) -> Option<Vec<u8>> {
    let count = if fourth < LOWEST_POINTER { fourth } else { fifth };
    // SAFETY: said above.
    (count > 0).then(|| unsafe { nodes(list, count) }).flatten()
}

/// No pointer is as small, and no count as large.
const LOWEST_POINTER: usize = 1 << 16;

/// Kinds of nodes (`CUgraphNodeType`, `cudaGraphNodeType`).
const COPY: u32 = 1;
const FILL: u32 = 2;
const CHILD: u32 = 4;
const WAITS: u32 = 6;
const RECORDS: u32 = 7;
const ALLOCATES: u32 = 10;
const FREES: u32 = 11;

/// A `CUgraphNodeParams` or a `cudaGraphNodeParams`: its kind, and sixteen bytes further what belongs to that.
#[derive(Clone, Copy)]
pub(super) struct NodeParameters {
    kind: u32,
    of_kind: *const u8,
    library: Library,
}

/// The parameters among the last arguments of `cu(da)GraphAddNode`, of which later versions have one more before the
/// count: behind a count stands a pointer, behind a pointer a count. Returns the count as well.
///
/// # Safety
///
/// The arguments are as the vendor wants them.
pub(super) unsafe fn node_parameters(
    library: Library,
    [fourth, fifth, sixth]: [usize; 3],
) -> (usize, Option<NodeParameters>) {
    let (count, parameters) = if fifth >= LOWEST_POINTER { (fourth, fifth) } else { (fifth, sixth) };
    // SAFETY: said above.
    (count, unsafe { parameters_at(library, std::ptr::with_exposed_provenance(parameters)) })
}

/// # Safety
///
/// It is null, or such parameters.
pub(super) unsafe fn parameters_at(library: Library, parameters: *const c_void) -> Option<NodeParameters> {
    // SAFETY: said above.
    let kind = unsafe { at(parameters.cast::<u32>()) }?;
    Some(NodeParameters { kind, of_kind: parameters.cast::<u8>().wrapping_add(16), library })
}

impl NodeParameters {
    pub(super) fn kind(&self) -> u32 {
        self.kind
    }

    /// A number of what belongs to the kind, if it is this one.
    ///
    /// # Safety
    ///
    /// The parameters are as the vendor wants them.
    unsafe fn word(&self, kind: u32, nth: usize) -> Option<u64> {
        // SAFETY: the parameters have 240 bytes behind their kind.
        let word = || unsafe { at(self.of_kind.cast::<u64>().wrapping_add(nth)) };
        (self.kind == kind).then(word).flatten()
    }

    /// What it reads or writes.
    ///
    /// # Safety
    ///
    /// The parameters are as the vendor wants them.
    pub(super) unsafe fn strips(&self, side: CopySide) -> Option<Strips> {
        let copy = self.of_kind.wrapping_add(16).cast();
        match (self.kind, self.library) {
            // SAFETY: that is where the copy of such a node stands.
            (COPY, Library::Runtime) => unsafe { runtime_3d(copy, side) },
            // SAFETY: as above.
            (COPY, _) => unsafe { driver_3d(copy, side) },
            // SAFETY: that is where the fill of such a node stands.
            (FILL, _) if side == CopySide::To => unsafe { filled(self.of_kind.cast()) },
            _ => Some(nothing()),
        }
    }

    /// # Safety
    ///
    /// The parameters are as the vendor wants them.
    pub(super) unsafe fn child(&self) -> Option<NumericAddress> {
        // SAFETY: said above.
        unsafe { self.word(CHILD, 0) }.map(NumericAddress)
    }

    /// # Safety
    ///
    /// The parameters are as the vendor wants them.
    pub(super) unsafe fn event(&self) -> Option<NumericAddress> {
        // SAFETY: said above.
        unsafe { self.word(WAITS, 0).or_else(|| self.word(RECORDS, 0)) }.map(NumericAddress)
    }

    /// How many bytes it allocates.
    ///
    /// # Safety
    ///
    /// The parameters are as the vendor wants them.
    pub(super) unsafe fn bytes(&self) -> Option<u64> {
        // SAFETY: said above.
        unsafe { self.word(ALLOCATES, 13) }
    }

    /// What it frees, and once the node is there what it allocates.
    ///
    /// # Safety
    ///
    /// The parameters are as the vendor wants them.
    pub(super) unsafe fn address(&self) -> Option<NumericAddress> {
        // SAFETY: said above.
        unsafe { self.word(ALLOCATES, 14).or_else(|| self.word(FREES, 0)) }.map(NumericAddress)
    }
}

/// A number of the parameters of a node that allocates.
///
/// # Safety
///
/// It is null, or such parameters.
pub(super) unsafe fn allocation(parameters: *const c_void, side: AllocationField) -> Option<u64> {
    // SAFETY: said above.
    let words = unsafe { at(parameters.cast::<[u64; 15]>()) }?;
    Some(match side {
        AllocationField::Bytes => words[13],
        AllocationField::Address => words[14],
    })
}

/// What is asked of such parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllocationField {
    Bytes,
    Address,
}

//! Memory at an address that the process chooses: reserved addresses, and physical memory mapped into them.
//!
//! It has the properties of `ncclMemAlloc`, so NCCL registers it as a window: handles that other processes
//! can import, and access by every device that can reach this one.
//! Not here: which address is chosen ([`crate::placement`]).

use std::mem::ManuallyDrop;
use std::ptr;

use cudarc::driver::sys;

use super::DeviceRange;
use super::cuda::{Device, check};
use super::inventory;
use crate::Error;

pub(super) fn length(len: u64) -> usize {
    usize::try_from(len).expect("CUDA needs 64-bit hosts")
}

fn properties(device: &Device) -> Result<sys::CUmemAllocationProp, Error> {
    let rdma = inventory::attribute(
        device.ordinal(),
        sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    )?;
    Ok(sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: on(device.ordinal()),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: u8::from(rdma != 0),
            usage: 0,
            reserved: [0; 4],
        },
    })
}

fn on(device: i32) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// Lets a device read and write memory that is mapped at this address with this length.
pub(super) fn grant(device: i32, address: u64, mapped_bytes: u64) -> Result<(), Error> {
    let access = sys::CUmemAccessDesc {
        location: on(device),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: one description is passed; the driver answers addresses where nothing is mapped with an error.
    let result = unsafe { sys::cuMemSetAccess(address, length(mapped_bytes), &raw const access, 1) };
    check("cuMemSetAccess", result)
}

/// The size of which every piece of placed memory is a multiple.
pub(crate) fn granularity(device: &Device) -> Result<u64, Error> {
    let properties = properties(device)?;
    let mut granularity = 0;
    // SAFETY: both pointers are valid for the length of the call.
    let result = unsafe {
        sys::cuMemGetAllocationGranularity(
            &raw mut granularity,
            &raw const properties,
            sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
        )
    };
    check("cuMemGetAllocationGranularity", result)?;
    Ok(granularity as u64)
}

/// A range of reserved addresses, into which memory is mapped piece by piece.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: u64,
    len_bytes: u64,
}

impl Reservation {
    /// `cuMemAddressReserve`, at an address of the driver's choice.
    pub(crate) fn reserve(_device: &Device, len_bytes: u64, alignment_bytes: u64) -> Result<Self, Error> {
        let mut base = 0;
        // SAFETY: `base` is valid for a write.
        let result = unsafe {
            sys::cuMemAddressReserve(&raw mut base, length(len_bytes), length(alignment_bytes), 0, 0)
        };
        check("cuMemAddressReserve", result)?;
        Ok(Self { base, len_bytes })
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the addresses come from `cuMemAddressReserve`; the owner is consumed, so this happens once.
        // The driver refuses it while memory is mapped there.
        check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(this.base, length(this.len_bytes)) })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        tracing::warn!(base = self.base, "reserved addresses were not freed");
    }
}

/// Physical memory, mapped at a chosen address.
#[derive(Debug)]
pub(crate) struct Placed {
    handle: sys::CUmemGenericAllocationHandle,
    address: u64,
    /// The length that was asked for.
    len_bytes: u64,
    /// A multiple of the granularity.
    mapped_bytes: u64,
}

impl Placed {
    /// `cuMemCreate`, `cuMemMap` and `cuMemSetAccess` for this device and `peers`, at `address` of a
    /// reservation.
    pub(crate) fn map(
        device: &Device,
        reservation: &Reservation,
        (address, len_bytes): (u64, u64),
        peers: &[i32],
    ) -> Result<Self, Error> {
        let mapped_bytes = len_bytes
            .max(1)
            .checked_next_multiple_of(granularity(device)?)
            .ok_or(Error::Size { len_bytes })?;
        let inside = address >= reservation.base
            && address - reservation.base <= reservation.len_bytes.saturating_sub(mapped_bytes);
        if !inside || mapped_bytes > reservation.len_bytes {
            return Err(Error::Address { address, len_bytes });
        }
        let properties = properties(device)?;
        let mut handle = 0;
        // SAFETY: both pointers are valid for the length of the call; the size is a multiple of the
        // granularity.
        let created =
            unsafe { sys::cuMemCreate(&raw mut handle, length(mapped_bytes), &raw const properties, 0) };
        check("cuMemCreate", created)?;
        // SAFETY: the address lies in a reservation that lives; the handle was created above.
        let mapped = unsafe { sys::cuMemMap(address, length(mapped_bytes), 0, handle, 0) };
        if let Err(error) = check("cuMemMap", mapped) {
            // SAFETY: the handle was created above and is given up here.
            let released = unsafe { sys::cuMemRelease(handle) };
            if let Err(after) = check("cuMemRelease", released) {
                tracing::debug!(%after, "physical memory was not released");
            }
            return Err(error);
        }
        let placed = Self { handle, address, len_bytes, mapped_bytes };
        match placed.grant(device, peers) {
            Ok(()) => Ok(placed),
            Err(error) => {
                placed.end()?;
                Err(error)
            }
        }
    }

    fn grant(&self, device: &Device, peers: &[i32]) -> Result<(), Error> {
        for ordinal in std::iter::once(&device.ordinal()).chain(peers) {
            grant(*ordinal, self.address, self.mapped_bytes)?;
        }
        Ok(())
    }

    pub(crate) fn range(&self) -> DeviceRange {
        DeviceRange::new(self.address, self.len_bytes)
    }

    /// `cuMemUnmap` and `cuMemRelease`. What other processes or windows have imported stays.
    pub(crate) fn end(self) -> Result<(), Error> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the memory is mapped at this address with this length; the owner is consumed.
        let unmapped = unsafe { sys::cuMemUnmap(this.address, length(this.mapped_bytes)) };
        // SAFETY: the handle comes from `cuMemCreate`; the owner is consumed, so this happens once.
        let released = unsafe { sys::cuMemRelease(this.handle) };
        check("cuMemUnmap", unmapped).and(check("cuMemRelease", released))
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        tracing::warn!(address = self.address, "placed memory was not released");
    }
}

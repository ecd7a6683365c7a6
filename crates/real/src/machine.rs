//! What a machine has: the driver, its devices, and which of them reach each other.
//!
//! Not here: what is missing for what. Nothing here opens a context or takes memory.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::ffi::{FoundLibrary, inventory};

/// A machine, as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// The newest CUDA that the driver speaks.
    pub cuda: String,
    /// Devices, in the driver's order.
    pub devices: Vec<DeviceFacts>,
    /// For each device, whether it reaches each of the others; itself included.
    pub reaches: Vec<Vec<bool>>,
}

/// What the driver says of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The name that the vendor gives the device.
    pub name: String,
    /// Size of its memory.
    pub memory_bytes: u64,
    /// Identity, 32 hexadecimal digits.
    pub uuid: String,
    /// Its address on the bus.
    pub bus_id: String,
    /// Major and minor number.
    pub compute_capability: (i32, i32),
    /// Whether it can do multicast.
    pub multicast: bool,
}

/// Asks the driver. `driver` is what [`crate::ffi::probe`] found.
///
/// # Errors
/// [`Error::Cuda`], for example 100 when there is no device.
pub fn machine(driver: &FoundLibrary) -> Result<MachineFacts, Error> {
    inventory::init(driver)?;
    let count = inventory::count()?;
    let devices = (0..count)
        .map(|device| {
            Ok(DeviceFacts {
                name: inventory::name(device)?,
                memory_bytes: inventory::total_bytes(device)?,
                uuid: inventory::uuid(device)?,
                bus_id: inventory::bus_id(device)?,
                compute_capability: inventory::compute_capability(device)?,
                multicast: inventory::multicast(device)?,
            })
        })
        .collect::<Result<_, Error>>()?;
    let reach = |device: i32, peer: i32| Ok(device == peer || inventory::reaches(device, peer)?);
    let reaches = (0..count)
        .map(|device| (0..count).map(|peer| reach(device, peer)).collect())
        .collect::<Result<_, Error>>()?;
    Ok(MachineFacts { cuda: driver.version.clone(), devices, reaches })
}

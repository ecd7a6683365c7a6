//! A program that calls NCCL and CUDA in one of the ways that the tests are about.
//!
//! Not here: what is expected of the recording.
#![allow(non_snake_case, missing_docs, reason = "names of the vendor, for tests alone")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

unsafe extern "C" {
    fn ncclGroupStart() -> c_int;
    fn ncclGroupEnd() -> c_int;
    fn ncclAllReduce(
        send: usize, recv: usize, count: usize, dtype: c_int, op: c_int, comm: usize, stream: usize,
    ) -> c_int;
    fn ncclCommWindowRegister(comm: usize, address: usize, bytes: usize, to: *mut usize, flags: c_int) -> c_int;
    fn ncclMemAlloc(to: *mut *mut c_void, bytes: usize) -> c_int;
    fn ncclMemFree(address: *mut c_void) -> c_int;
    fn ncclCommInitRank(to: *mut usize, ranks: c_int, id: UniqueId, rank: c_int) -> c_int;
    fn ncclCommInitAll(to: *mut usize, ranks: c_int, devices: *const c_int) -> c_int;
    fn cudaSetDevice(device: c_int) -> c_int;
    fn cudaStreamSynchronize(stream: usize) -> c_int;
    fn __cudaLaunchKernel(kernel: usize, grid: Dim3, block: Dim3, arguments: usize, shared: usize, stream: usize) -> c_int;
    fn __cudaLaunchKernel_ptsz(
        kernel: usize, grid: Dim3, block: Dim3, arguments: usize, shared: usize, stream: usize,
    ) -> c_int;
    fn cudaLaunchCooperativeKernel(
        kernel: usize, grid: Dim3, block: Dim3, arguments: usize, shared: usize, stream: usize,
    ) -> c_int;
    fn cudaLaunchHostFunc(stream: usize, function: usize, data: usize) -> c_int;
    fn cudaEventQuery(event: usize) -> c_int;
    fn cudaEventRecord(event: usize, stream: usize) -> c_int;
    fn cudaStreamCreateWithFlags(to: *mut usize, flags: u32) -> c_int;
    fn cudaGetDriverEntryPoint(name: *const c_char, to: *mut *mut c_void, flags: u64, status: *mut c_int) -> c_int;
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, flags: c_int) -> c_int;
    fn raise(signal: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
}

#[repr(C)]
pub struct UniqueId([c_char; 128]);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3([u32; 3]);

type MemCreate = unsafe extern "C" fn(*mut u64, usize, *const c_void, u64) -> c_int;

fn calls() {
    let (mut comm, mut memory) = (0, std::ptr::null_mut());
    let mut id = UniqueId([0; 128]);
    id.0[127] = 7;
    // SAFETY: all pointers are to what the calls want.
    unsafe {
        assert_eq!(ncclGroupStart(), 0);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(77));
        assert_eq!(ncclGroupEnd(), 5);
        assert_eq!(ncclMemAlloc(&raw mut memory, 64), 0);
        assert_eq!(ncclCommInitRank(&raw mut comm, 4, id, 3), 0);
        assert_eq!(cudaSetDevice(2), 0);
    }
    assert_eq!((memory.addr(), comm), (0x1040, 0xc003));
}

/// Registers two windows in a group: they are there when it ends.
fn windows() {
    let mut windows = [0; 2];
    let [first, second] = windows.each_mut().map(std::ptr::from_mut);
    // SAFETY: both places outlive the group.
    unsafe {
        assert_eq!(ncclGroupStart(), 0);
        assert_eq!(ncclCommWindowRegister(0xc0, 0x1000, 64, first, 1), 0);
        assert_eq!(ncclCommWindowRegister(0xc0, 0x2000, 64, second, 1), 0);
        assert_eq!(ncclGroupEnd(), 0);
    }
    assert_eq!(windows, [0x1001, 0x2001]);
}

/// Prints what calls cost, in nanoseconds each: in the best of many rounds, and where the caches were used for
/// something else since the call before.
fn measure() {
    let print = |name: &str, call: &dyn Fn(usize)| println!("{name} {:.1} {:.1}", best(call), after_others(call));
    // SAFETY: the stand-ins look at nothing.
    unsafe {
        print("cudaSetDevice", &|_| _ = cudaSetDevice(0));
        print("cudaEventRecord", &|nth| _ = cudaEventRecord(0x3000_0000 + 64 * (nth % 2000), 7));
        print("cudaStreamCreateWithFlags", &|_| _ = cudaStreamCreateWithFlags(&mut 0, 1));
        print("ncclAllReduce", &|_| _ = ncclAllReduce(0x7f00, 0x7f00, 4096, 7, 0, 9, 7));
        print("cudaEventQuery", &|_| _ = cudaEventQuery(0xe0));
    }
}

/// What a call costs in the best of many rounds.
fn best(call: &dyn Fn(usize)) -> f64 {
    const CALLS: usize = 20_000;
    let rounds = (0..200).map(|_| {
        let began = std::time::Instant::now();
        (0..CALLS).for_each(call);
        began.elapsed()
    });
    1e9 * rounds.min().expect("there are rounds").as_secs_f64() / CALLS as f64
}

/// What a call costs in the middle of many, where nothing of it is in the nearer caches.
fn after_others(call: &dyn Fn(usize)) -> f64 {
    // More than a processor's own cache holds.
    let others = vec![1_u8; 4 << 20];
    let mut costs: Vec<_> = (0..4001)
        .map(|nth| {
            assert_ne!(others.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>(), 0);
            let began = std::time::Instant::now();
            call(nth % 16);
            began.elapsed()
        })
        .collect();
    costs.sort_unstable();
    1e9 * costs[costs.len() / 2].as_secs_f64()
}

fn many(count: u64) {
    for nth in 0..count {
        // SAFETY: it takes a number alone.
        unsafe { cudaSetDevice(c_int::try_from(nth % 1000).expect("small")) };
    }
}

/// Asks for an event ten times, records it, and asks ten times more.
fn polls() {
    for round in 0..2 {
        for _ in 0..10 {
            // SAFETY: the stand-in does not look at it.
            unsafe { cudaEventQuery(0xe0) };
        }
        if round == 0 {
            // SAFETY: as above.
            unsafe { cudaEventRecord(0xe0, 5) };
        }
    }
}

fn driver() {
    let mut handle = 0;
    for (flags, wanted) in [(0, 5), (1, 10), (0, 5)] {
        let mut function = std::ptr::null_mut();
        // SAFETY: all pointers are to what the calls want; the function has this type.
        unsafe {
            let code = cudaGetDriverEntryPoint(c"cuMemCreate".as_ptr(), &raw mut function, flags, std::ptr::null_mut());
            assert_eq!(code, 0);
            let create: MemCreate = std::mem::transmute(function);
            assert_eq!(create(&raw mut handle, 4096, std::ptr::null(), 5), 0);
        }
        assert_eq!(handle, wanted);
    }
}

/// A function of the driver, as programs find it that load the driver themselves.
fn of_driver(name: &str) -> *mut c_void {
    let name = CString::new(name).expect("no zero");
    // SAFETY: paths and names end in a zero.
    let function = unsafe { dlsym(dlopen(c"libcuda.so.1".as_ptr(), 2), name.as_ptr()) };
    assert!(!function.is_null());
    function
}

/// A function of the driver, as a CUDA runtime finds it that is linked into the program.
fn asked_for(name: &str, flags: u64) -> *mut c_void {
    type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;
    let (name, mut function) = (CString::new(name).expect("no zero"), std::ptr::null_mut());
    // SAFETY: all pointers are to what the calls want; the function has this type.
    let code = unsafe {
        // As a runtime that is linked in does it, which then asks this one for all others.
        let first: GetProcAddress = std::mem::transmute(of_driver("cuGetProcAddress_v2"));
        let (own, mut get) = (c"cuGetProcAddress", std::ptr::null_mut());
        assert_eq!(first(own.as_ptr(), &raw mut get, 12_000, 0, std::ptr::null_mut()), 0);
        let get: GetProcAddress = std::mem::transmute(get);
        get(name.as_ptr(), &raw mut function, 12_000, flags, std::ptr::null_mut())
    };
    assert_eq!(code, 0);
    function
}

/// Calls a function that was looked up, with these arguments.
macro_rules! call {
    ($function:expr, $($argument:expr => $type:ty),*) => {{
        // SAFETY: the function has these parameters, and the stand-ins look at none but the pointers they write to.
        let function: unsafe extern "C" fn($($type),*) -> c_int = unsafe { std::mem::transmute($function) };
        // SAFETY: as above.
        assert_eq!(unsafe { function($($argument),*) }, 0);
    }};
}

/// Allocates, fills, orders, waits and frees, all through the driver.
fn through_driver() {
    let mut memory = 0_u64;
    call!(of_driver("cuMemAlloc_v2"), &raw mut memory => *mut u64, 64 => usize);
    call!(of_driver("cuMemcpyHtoDAsync_v2"), memory => u64, 0x77 => usize, 64 => usize, 5 => usize);
    call!(of_driver("cuEventRecord"), 0xe0 => usize, 5 => usize);
    call!(of_driver("cuStreamWaitEvent"), 6 => usize, 0xe0 => usize, 0 => u32);
    call!(of_driver("cuMemsetD32Async"), memory => u64, 9 => u32, 16 => usize, 6 => usize);
    call!(of_driver("cuStreamSynchronize"), 6 => usize);
    call!(of_driver("cuMemcpyDtoH_v2"), 0x77 => usize, memory => u64, 64 => usize);
    call!(of_driver("cuCtxSynchronize"),);
    call!(of_driver("cuMemFree_v2"), memory => u64);
}

/// The same functions under names that do not tell their version, and what a null stream means to them.
fn through_lookup() {
    let mut memory = 0_u64;
    call!(asked_for("cuMemAlloc", 0), &raw mut memory => *mut u64, 64 => usize);
    call!(asked_for("cuMemsetD32Async", 0), memory => u64, 9 => u32, 16 => usize, 0 => usize);
    call!(asked_for("cuStreamSynchronize", 1), 0 => usize);
    call!(asked_for("cuMemsetD32Async", 2), memory => u64, 9 => u32, 16 => usize, 0 => usize);
    call!(asked_for("cuStreamSynchronize", 2), 0 => usize);
    call!(asked_for("cuStreamSynchronize", 2), 5 => usize);
    call!(asked_for("cuMemFree", 0), memory => u64);
}

/// What a stream calls when it gets there.
extern "C" fn stream_arrived(data: usize) {
    assert_eq!(data, 0, "it gets what it was launched with");
}

/// Every form of a launch.
fn launches() {
    let (one, mut comms) = (Dim3([1; 3]), [0; 2]);
    // SAFETY: the stand-ins look at nothing but where they write to.
    unsafe {
        __cudaLaunchKernel(0xf0, one, one, 0, 0, 5);
        __cudaLaunchKernel_ptsz(0xf0, one, one, 0, 0, 0);
        cudaLaunchCooperativeKernel(0xf1, one, one, 0, 0, 5);
        cudaLaunchHostFunc(5, stream_arrived as *const () as usize, 0);
        cudaStreamSynchronize(5);
        ncclCommInitAll(comms.as_mut_ptr(), 1, std::ptr::null());
        ncclCommInitAll(comms.as_mut_ptr(), 2, std::ptr::null());
    }
}

/// Copies of rows, and a node of a graph: the vendor's structures as numbers of eight bytes.
fn rows() {
    // From row 2 of the host's memory to byte 16 of row 1 of the device's: 64 bytes of each of 10 rows.
    let flat: [u64; 16] = [0, 2, 1, 0x1000, 0, 0, 256, 16, 1, 2, 0, 0x8000, 0, 128, 64, 10];
    call!(of_driver("cuMemcpy2DAsync_v2"), flat.as_ptr() => *const u64, 5 => usize);
    // From plane 1 of memory with 4 rows of 32 bytes in a plane, to an array: 8 bytes of 3 rows of 2 planes.
    let mut solid = [0_u64; 25];
    (solid[2], solid[4], solid[6], solid[9], solid[10]) = (1, 2, 0x8000, 32, 4);
    (solid[15], solid[18]) = (3, 0xa);
    (solid[22], solid[23], solid[24]) = (8, 3, 2);
    call!(asked_for("cuMemcpy3D", 0), solid.as_ptr() => *const u64);
    // A node that fills two rows of 16 words behind node 7; both versions of the call have this name.
    let mut filling = [0_u64; 32];
    filling[0] = 2;
    filling[2..7].copy_from_slice(&[0x8000, 512, 4 << 32, 16, 2]);
    let (mut node, behind) = (0_usize, [7_usize]);
    call!(
        asked_for("cuGraphAddNode", 0), (&raw mut node).addr() => usize, 0xa0 => usize, behind.as_ptr().addr() => usize,
        0 => usize, 1 => usize, filling.as_ptr() => *const u64
    );
}

/// Calls, stops the recorder, calls, goes on, calls; and once more without calls in between.
fn pauses() {
    // SAFETY: the name ends in a zero, and the recorder's function has this type.
    let pause: extern "C" fn(c_int) =
        unsafe { std::mem::transmute(dlsym(std::ptr::null_mut(), c"rankcheck_record_pause".as_ptr())) };
    many(2);
    for between in [5, 0] {
        pause(1);
        many(between);
        pause(0);
        many(1);
    }
}

/// Launches a function of the host on a stream and on one that is captured, where it may run again.
fn host_functions() {
    for stream in [5, 5, 9, 9] {
        // SAFETY: the function takes a number.
        unsafe { cudaLaunchHostFunc(stream, stream_arrived as *const () as usize, 0) };
    }
}

/// Reduces, waits in this way, and frees what was reduced.
fn step(wait: &str) {
    let (mut comm, mut memory) = (0, std::ptr::null_mut());
    let mut id = UniqueId([0; 128]);
    id.0[127] = 7;
    let rank = std::env::var("RANK").expect("the test sets it").parse().expect("a number");
    // SAFETY: all pointers are to what the calls want.
    assert_eq!(unsafe { ncclCommInitRank(&raw mut comm, 4, id, rank) }, 0);
    // SAFETY: as above; the stand-in for the reduction looks at nothing.
    unsafe {
        assert_eq!(ncclMemAlloc(&raw mut memory, 4096), 0);
        ncclAllReduce(memory.addr(), memory.addr(), 1024, 7, 0, comm, 5);
    }
    match wait {
        "not" => {}
        "driver" => call!(of_driver("cuStreamSynchronize"), 5 => usize),
        "context" => call!(asked_for("cuCtxSynchronize", 0),),
        "copy" => {
            call!(of_driver("cuEventRecord"), 0xe0 => usize, 5 => usize);
            call!(of_driver("cuStreamWaitEvent"), 0 => usize, 0xe0 => usize, 0 => u32);
            call!(asked_for("cuMemcpyDtoH", 0), 0x77 => usize, memory.addr() as u64 => u64, 64 => usize);
        }
        "function" => {
            let function = stream_arrived as *const () as usize;
            call!(of_driver("cuLaunchHostFunc"), 5 => usize, function => usize, 0 => usize);
        }
        other => panic!("no such way to wait: {other}"),
    }
    // SAFETY: the stand-in looks at nothing.
    assert_eq!(unsafe { ncclMemFree(memory) }, 0);
}

fn by_path(path: &str) {
    let path = CString::new(path).expect("no zero");
    // SAFETY: paths and names end in a zero, and the functions have these types.
    unsafe {
        let library = dlopen(path.as_ptr(), 2);
        assert!(!library.is_null());
        let start = dlsym(library, c"ncclGroupStart".as_ptr());
        let start: extern "C" fn() -> c_int = std::mem::transmute(start);
        assert_eq!(start(), 0);
        let version: unsafe extern "C" fn(*mut c_int) -> c_int =
            std::mem::transmute(dlsym(library, c"ncclGetVersion".as_ptr()));
        let mut number = 0;
        assert_eq!(version(&raw mut number), 0);
        assert_eq!(number, 22809);
        // A call that this NCCL does not have: an error, or nothing to call.
        let missing = dlsym(library, c"ncclCommFinalize".as_ptr());
        if !missing.is_null() {
            let missing: extern "C" fn(usize) -> c_int = std::mem::transmute(missing);
            assert_eq!(missing(1), 5);
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments[1].as_str() {
        "nothing" => {}
        "windows" => windows(),
        "measure" => measure(),
        "variable" => by_path(&std::env::var(&arguments[2]).expect("the variable is set")),
        "abort" => {
            many(1000);
            std::process::abort();
        }
        "crash" => {
            many(1000);
            // SAFETY: it is not: this is what a crash is.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(0) };
        }
        "wait" => {
            many(1000);
            println!("ready");
            std::io::stdin().read_line(&mut String::new()).expect("it can be read");
        }
        "linger" => {
            many(10);
            let (mut here, mut there) = UnixStream::pair().expect("there are descriptors left");
            // SAFETY: the child calls nothing that another thread could hold.
            if unsafe { fork() } != 0 {
                here.read_exact(&mut [0]).expect("the child writes");
            } else {
                many(20);
                there.write_all(&[1]).expect("the parent reads");
                println!("ready");
                std::io::stdin().read_line(&mut String::new()).expect("it can be read");
            }
        }
        "calls" => calls(),
        "exit" => {
            calls();
            std::process::exit(9);
        }
        "leaves" => {
            std::thread::spawn(calls).join().expect("it calls what is there");
            // SAFETY: it takes a number alone.
            unsafe { _exit(3) };
        }
        "polls" => polls(),
        "driver" => driver(),
        "through-driver" => through_driver(),
        "through-lookup" => through_lookup(),
        "launches" => launches(),
        "rows" => rows(),
        "pauses" => pauses(),
        "host-functions" => host_functions(),
        "step" => step(&arguments[2]),
        "path" => by_path(&arguments[2]),
        "many" => many(arguments[2].parse().expect("a number")),
        "killed" => {
            many(100_000);
            // SAFETY: it takes a number alone.
            unsafe { raise(9) };
        }
        "threads" => {
            let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(|| many(50_000))).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        }
        "running" => {
            let (ready, is_ready) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                many(1000);
                ready.send(()).expect("the other end is there");
                loop {
                    many(10);
                }
            });
            is_ready.recv().expect("the other end is there");
        }
        "fork" => {
            many(10);
            // SAFETY: the child calls nothing that another thread could hold.
            let child = unsafe { fork() };
            if child == 0 {
                many(20);
                // SAFETY: it takes a number alone.
                unsafe { _exit(7) };
            }
            // SAFETY: a null status is allowed.
            unsafe { waitpid(child, std::ptr::null_mut(), 0) };
            many(5);
        }
        other => panic!("no such way: {other}"),
    }
}

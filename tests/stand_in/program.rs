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
    fn ncclCommInitRank(to: *mut usize, ranks: c_int, id: UniqueId, rank: c_int) -> c_int;
    fn cudaSetDevice(device: c_int) -> c_int;
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
        "polls" => polls(),
        "driver" => driver(),
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
                unsafe { _exit(0) };
            }
            // SAFETY: a null status is allowed.
            unsafe { waitpid(child, std::ptr::null_mut(), 0) };
            many(5);
        }
        other => panic!("no such way: {other}"),
    }
}

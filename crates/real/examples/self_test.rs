//! Tries the first device and prints one line a step. Not a test of programs.
#![expect(clippy::print_stdout, reason = "the lines are what the example is for")]

use std::process::ExitCode;

use rankcheck_real::ffi;
use rankcheck_real::self_test::self_test;

fn main() -> ExitCode {
    let probe = ffi::probe();
    if let Ok(driver) = &probe.cuda {
        match rankcheck_real::machine::machine(driver) {
            Ok(machine) => println!("{machine:#?}"),
            Err(error) => println!("the devices cannot be listed: {error}"),
        }
    }
    let libraries = match probe.require() {
        Ok(libraries) => libraries,
        Err(error) => {
            println!("{error}");
            return ExitCode::from(4);
        }
    };
    println!("CUDA {}, NCCL {}", libraries.cuda.version, libraries.nccl.version);
    match self_test(&libraries, 0, |step| println!("ok: {step}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

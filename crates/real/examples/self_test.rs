//! Tries the first device and writes one line a step. Not a test of programs.

use std::io::{self, Write};
use std::process::ExitCode;

use rankcheck_real::ffi;
use rankcheck_real::self_test::self_test;

fn main() -> io::Result<ExitCode> {
    let mut out = io::stdout();
    let probe = ffi::probe();
    if let Ok(driver) = &probe.cuda {
        match rankcheck_real::machine::machine(driver) {
            Ok(machine) => writeln!(out, "{machine:#?}")?,
            Err(error) => writeln!(out, "the devices cannot be listed: {error}")?,
        }
    }
    let libraries = match probe.require() {
        Ok(libraries) => libraries,
        Err(error) => {
            writeln!(out, "{error}")?;
            return Ok(ExitCode::from(4));
        }
    };
    writeln!(out, "CUDA {}, NCCL {}", libraries.cuda.version, libraries.nccl.version)?;
    let mut written = Ok(());
    let result = self_test(&libraries, 0, |step| {
        let line = writeln!(out, "ok: {step}").and_then(|()| out.flush());
        if written.is_ok() {
            written = line;
        }
    });
    written?;
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            writeln!(out, "failed: {error}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

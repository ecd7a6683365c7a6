//! What the tests of whole programs need: the command, the recorder, stand-ins for NCCL and CUDA and a program that
//! calls them.
//!
//! Not here: tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rankcheck_tests::repository::{enter, files_under};

/// Returns the folder in which cargo puts tests and the libraries that they depend on.
fn dependencies() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    test.parent().expect("it lies in a folder").to_owned()
}

/// Returns the command. Cargo builds it for the tests of its own package and tells no other package where it is, so it
/// can be older than its sources when the tests of this package are built alone.
pub(crate) fn command() -> &'static Path {
    static COMMAND: OnceLock<PathBuf> = OnceLock::new();
    COMMAND.get_or_init(|| {
        let command = dependencies().parent().expect("it lies in a folder").join("rankcheck");
        let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        let built = changed(&command).expect("`cargo build` or `cargo test --workspace` builds the command");
        for source in ["check", "model", "real", "recording"].map(|name| format!("crates/{name}/src")) {
            for path in files_under(&source) {
                assert!(
                    changed(&enter().join(&path)) <= Some(built),
                    "the command is older than {}: `cargo build` or `cargo test --workspace` builds it",
                    path.display()
                );
            }
        }
        command
    })
}

/// Runs the command in a folder. Returns its exit code, and what it printed, errors last.
pub(crate) fn ran(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output =
        Command::new(command()).args(arguments).current_dir(folder).output().expect("the command starts");
    let [printed, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    (output.status.code(), printed.into_owned() + &errors)
}

/// Returns the recorder's library, which this package depends on.
pub(crate) fn recorder() -> &'static Path {
    static RECORDER: OnceLock<PathBuf> = OnceLock::new();
    RECORDER.get_or_init(|| dependencies().join("librankcheck_record.so"))
}

/// Returns the folder of `libnccl.so.2`, `libcudart.so.12`, `libcuda.so.1` and `program`.
pub(crate) fn stand_ins() -> &'static Path {
    static STAND_INS: OnceLock<PathBuf> = OnceLock::new();
    STAND_INS.get_or_init(compile_stand_ins)
}

/// Compiles the stand-ins: they are no part of the workspace, since they define what is NCCL's and CUDA's.
fn compile_stand_ins() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand_ins");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("stand_in");
    let compile = |arguments: &[&str], from: &str, to: &str| {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-O", "-L", folder.to_str().expect("UTF-8")]).args(arguments);
        let output = rustc.arg(sources.join(from)).arg("-o").arg(folder.join(to)).output();
        let output = output.expect("rustc runs where cargo does");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let named = |name: &str| format!("-Clink-arg=-Wl,-soname,{name}");
    // What it finds for others are its own functions, whatever stands before them in the order of the linker.
    let own = "-Clink-arg=-Wl,-Bsymbolic";
    compile(&["--crate-type", "cdylib", &named("libcuda.so.1"), own], "driver.rs", "libcuda.so.1");
    compile(&["--crate-type", "cdylib", &named("libcudart.so.12")], "cuda.rs", "libcudart.so.12");
    let cuda = "-Clink-arg=-l:libcudart.so.12";
    compile(&["--crate-type", "cdylib", &named("libnccl.so.2"), cuda], "nccl.rs", "libnccl.so.2");
    compile(&["-Clink-arg=-l:libnccl.so.2", cuda], "program.rs", "program");
    folder
}

/// A fresh folder that belongs to one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("an old folder can be removed");
    }
    fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

//! What the tests of whole programs need: the command, the recorder, stand-ins for NCCL and CUDA and a program that
//! calls them; built once, as the tests were.
//!
//! Not here: tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rankcheck_tests::repository::enter;
use serde_json::Value;

/// Where everything is.
pub(crate) struct Built {
    /// The command.
    pub(crate) command: PathBuf,
    /// The recorder's library.
    pub(crate) recorder: PathBuf,
    /// The folder of `libnccl.so.2`, `libcudart.so.12` and `program`.
    pub(crate) stand_ins: PathBuf,
}

/// What is built. Cargo names binaries only to tests of their own package.
pub(crate) fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own path");
        let profile =
            if test.components().any(|part| part.as_os_str() == "release") { "release" } else { "test" };
        let cargo = Command::new(env!("CARGO"))
            .args(["build", "--offline", "--package", "rankcheck", "--package", "rankcheck-record"])
            .args(["--profile", profile, "--message-format", "json"])
            .current_dir(enter())
            .output()
            .expect("cargo runs");
        assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
        let messages = String::from_utf8(cargo.stdout).expect("cargo writes UTF-8");
        let files: Vec<PathBuf> = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
            .filter_map(|file| file.as_str().map(PathBuf::from))
            .collect();
        let file = |name: &str| {
            files.iter().find(|path| path.ends_with(name)).expect("cargo says what it built").clone()
        };
        Built { command: file("rankcheck"), recorder: file("librankcheck_record.so"), stand_ins: stand_ins() }
    })
}

/// Compiles the stand-ins: they are no part of the workspace, since they define what is NCCL's and CUDA's.
fn stand_ins() -> PathBuf {
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

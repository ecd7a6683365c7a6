//! Makes a recording small enough for this repository: `cargo run -p rankcheck-tests --example small_recording -- FROM TO`.
//! Times are rounded down to milliseconds, calls and their order stay; then it is packed and folded.

use std::path::{Path, PathBuf};

use rankcheck_recording::{folded, pack};
use rankcheck_tests::edited::EditableFile;

const MILLISECOND: u64 = 1_000_000;

fn main() {
    let mut folders = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(from), Some(to)) = (folders.next(), folders.next()) else { panic!("two folders are needed") };
    std::fs::create_dir_all(&to).expect("the folder can be made");
    let files = rankcheck::runs::world::files(&from).expect("the recording is there");
    for (rank, path) in files.iter().enumerate() {
        let mut file = EditableFile::read(path).expect("it is whole");
        file.round_times(MILLISECOND);
        let to: &Path = &to.join(format!("rank{rank}.rankrec"));
        file.write(to);
        pack(to, None).expect("it was written");
        folded::fold(to, to).expect("it was packed");
    }
}

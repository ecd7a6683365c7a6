//! What a wheel relies on: `pip install .` says what is missing where it cannot compile, and an installed command finds
//! the specs that came with it.
//!
//! Not here: the wheel (`ci/wheel` builds one and tries it).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rankcheck_tests::repository::enter;

use super::built::{command, folder};

/// Asks what pip asks before it builds, with nothing but `programs` on the path: whether it goes on, and what it says.
/// Says nothing where there is no Python.
fn asked_what_is_required(programs: &Path) -> Option<(bool, String)> {
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    let python = String::from_utf8_lossy(&python.stdout).trim().to_owned();
    let ask = "import sys\nsys.path.insert(0, 'ci')\nsys.dont_write_bytecode = True\n\
               import rankcheck_wheel\nprint(rankcheck_wheel.get_requires_for_build_wheel())";
    let mut command = Command::new(python);
    command.current_dir(enter()).env("PATH", programs).args(["-c", ask]);
    let answer = command.output().expect("the interpreter can be started");
    let said = [answer.stdout, answer.stderr].concat();
    Some((answer.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn a_source_build_says_what_it_lacks() {
    let programs = folder("wheel-programs");
    let Some((goes_on, said)) = asked_what_is_required(&programs) else {
        println!("not run: there is no python3");
        return;
    };
    assert!(!goes_on, "{said}");
    for words in ["there is no cargo on the path", "Install Rust 1.", "install a wheel file"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("Traceback"), "{said}");

    let cargo = programs.join("cargo");
    for (script, says) in [
        ("echo 'cargo 1.63.0 (fd9c4297c 2022-07-01)'", Some("the cargo on the path is of Rust 1.63")),
        ("echo 'no toolchain is configured' >&2; exit 1", Some("`cargo --version` fails: no toolchain")),
        ("echo 'cargo 2.0.1'", None),
    ] {
        fs::write(&cargo, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("it was written");
        let (goes_on, said) = asked_what_is_required(&programs).expect("it was started before");
        assert_eq!(goes_on, says.is_none(), "{said}");
        assert!(said.contains(says.unwrap_or("[]")), "{said}");
    }
}

#[test]
fn an_installed_command_finds_its_specs_wherever_a_spec_lies() {
    let prefix = folder("wheel-prefix");
    let (bin, lib) = (prefix.join("bin"), prefix.join("share/rankcheck/specs/lib"));
    fs::create_dir_all(&bin).expect("the folder is there");
    fs::create_dir_all(&lib).expect("the folder is there");
    let installed = bin.join("rankcheck");
    fs::hard_link(command(), &installed).expect("it lies on the same disk");
    fs::write(lib.join("theirs.star"), "def meet(r):\n    r.comm(\"all\", r.world)\n")
        .expect("it can be written");
    let said_of = |command: &Path, spec: &Path| {
        let answer = Command::new(command).arg("check").arg(spec).output().expect("it can be started");
        let said = String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned();
        (answer.status.code(), said)
    };
    let check = "load(\"//lib/theirs.star\", \"meet\")\ncheck(\"they meet\", meet, expect = holds())\n";

    // Neither below a folder named specs nor in one that lacks the file.
    for own in ["mine", "project/specs"] {
        let own = prefix.join(own);
        fs::create_dir_all(&own).expect("the folder is there");
        let spec = own.join("spec.star");
        fs::write(&spec, check).expect("it can be written");
        let (code, said) = said_of(&installed, &spec);
        assert_eq!(code, Some(0), "{said}");
        // A command that is not installed has none.
        let (code, said) = said_of(command(), &spec);
        assert_eq!(code, Some(2), "{said}");
    }

    // What lies nearer is taken: this one has no such function.
    let near = prefix.join("project/specs/lib");
    fs::create_dir_all(&near).expect("the folder is there");
    fs::write(near.join("theirs.star"), "def part(r):\n    pass\n").expect("it can be written");
    let (code, said) = said_of(&installed, &prefix.join("project/specs/spec.star"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("meet"), "{said}");
}

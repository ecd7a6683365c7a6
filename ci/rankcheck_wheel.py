"""Builds the wheel: maturin builds the command, and this adds the recorder's library, which the command looks for in
`../lib/rankcheck`, the specs and documents, in `../share/rankcheck`, and the Python package. `pip` calls it, through
pyproject.toml. Where something to compile with is missing, it says so before anything is built.

Not here: a source distribution; wheels are built from the repository. What makes a wheel run on older systems than the
one that built it (`ci/wheel`).
"""

import json
import os
import re
import shutil
import subprocess

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# As pyproject.toml says. The folders in it have the names that the format of wheels gives them.
_DATA = os.path.join(_ROOT, "target", "wheel")
# Together, because the documents lead to each other and to the specs.
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs", "specs")


def get_requires_for_build_wheel(config_settings=None):
    # Asked by pip before it builds. maturin's own answer would be a package that downloads Rust.
    missing = _missing()
    if missing:
        raise SystemExit(
            f"rankcheck is compiled here, and that is not possible: {missing}.\n"
            f"Install Rust {_rust_version()} or later (rustup does) and a C compiler, and try again. Or install a wheel "
            "file (rankcheck-*-manylinux_*_x86_64.whl), which needs neither; ci/wheel makes one where Rust is."
        )
    return []


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import maturin

    # `pip --no-build-isolation` does not ask what is required.
    get_requires_for_build_wheel()
    _gather()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    # The command is compiled, so there is nothing to edit in place.
    return build_wheel(wheel_directory, config_settings, metadata_directory)


def _missing():
    """What is missing to compile with, if anything is. That there is no C compiler cargo says clearly."""
    if shutil.which("cargo") is None:
        return "there is no cargo on the path"
    # In this folder, as it is started later: which one rustup takes may depend on it.
    asked = subprocess.run(["cargo", "--version"], cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = re.match(r"cargo (\d+)\.(\d+)", asked.stdout)
    if asked.returncode != 0 or found is None:
        return f"`cargo --version` fails: {(asked.stderr or asked.stdout).strip()}"
    if [int(part) for part in found.groups()] < [int(part) for part in _rust_version().split(".")[:2]]:
        return f"the cargo on the path is of Rust {found[1]}.{found[2]}"
    return None


def _rust_version():
    with open(os.path.join(_ROOT, "Cargo.toml"), encoding="utf-8") as manifest:
        return re.search(r'^rust-version = "([\d.]+)"', manifest.read(), re.MULTILINE)[1]


def _gather() -> None:
    shutil.rmtree(_DATA, ignore_errors=True)
    library = os.path.join(_DATA, "data", "lib", "rankcheck")
    os.makedirs(library)
    shutil.copy(_library(), library)
    share = os.path.join(_DATA, "data", "share", "rankcheck")
    for name in DOCUMENTS:
        _copy(name, os.path.join(share, name))
    package = "rankcheck_record"
    _copy(os.path.join("python", package), os.path.join(_DATA, "purelib", package))


def _copy(name: str, to: str) -> None:
    source = os.path.join(_ROOT, name)
    if os.path.isdir(source):
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    else:
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(source, to)


def _library() -> str:
    """Builds the recorder; cargo says where it is."""
    command = ["cargo", "rustc", "--release", "--locked", "--package", "rankcheck-record", "--message-format", "json"]
    # As maturin strips the command: without symbols for debuggers it is a tenth of the size.
    built = subprocess.run([*command, "--", "-C", "strip=symbols"], cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    for line in built.stdout.splitlines():
        for path in json.loads(line).get("filenames", []):
            if os.path.basename(path) == "librankcheck_record.so":
                return path
    raise RuntimeError("cargo did not say where it put librankcheck_record.so")

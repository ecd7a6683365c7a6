"""Builds the wheel: maturin builds the command, and this adds the recorder's library, which the command looks for in
`../lib/rankcheck`, and the Python package. `pip` calls it, through pyproject.toml.

Not here: a source distribution; wheels are built from the repository.
"""

import json
import os
import shutil
import subprocess

import maturin

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_wheel

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# As pyproject.toml says. The folders in it have the names that the format of wheels gives them.
_DATA = os.path.join(_ROOT, "target", "wheel")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _gather()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    # The command is compiled, so there is nothing to edit in place.
    return build_wheel(wheel_directory, config_settings, metadata_directory)


def _gather() -> None:
    shutil.rmtree(_DATA, ignore_errors=True)
    library = os.path.join(_DATA, "data", "lib", "rankcheck")
    os.makedirs(library)
    shutil.copy(_library(), library)
    package = "rankcheck_record"
    shutil.copytree(
        os.path.join(_ROOT, "python", package),
        os.path.join(_DATA, "purelib", package),
        ignore=shutil.ignore_patterns("__pycache__"),
    )


def _library() -> str:
    """Builds the recorder; cargo says where it is."""
    command = ["cargo", "build", "--release", "--locked", "--package", "rankcheck-record", "--message-format", "json"]
    built = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    for line in built.stdout.splitlines():
        for path in json.loads(line).get("filenames", []):
            if os.path.basename(path) == "librankcheck_record.so":
                return path
    raise RuntimeError("cargo did not say where it put librankcheck_record.so")

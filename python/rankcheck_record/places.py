"""Where in the user's code a call was made.

Not here: frames of torch and of this package, which are never the user's.
"""

import os
import sys
import sysconfig

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Where packages are installed, whoever's they are.
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TORCH = tuple(os.path.join(folder, "torch", "") for folder in _INSTALLED)
# The standard library stands between callers and torch: decorators, context managers, threads, processes.
_LIBRARY = tuple(
    {path + os.sep for key in ("stdlib", "platstdlib") if (path := sysconfig.get_path(key))}
)
_USERS, _PACKAGE, _INNER = range(3)
_names: dict = {}


def _look_up(file: str):
    """A file as reports name it, and whose it is."""
    known = _names.get(file)
    if known is None:
        absolute = os.path.abspath(file)
        inside = os.getcwd() + os.sep
        name = absolute[len(inside):] if absolute.startswith(inside) else absolute
        known = _names[file] = (name, _whose(file, absolute))
    return known


def _whose(file: str, absolute: str) -> int:
    if file.startswith("<") or absolute.startswith(_HERE) or any(part in absolute for part in _TORCH):
        return _INNER
    if any(part in absolute for part in _INSTALLED):
        return _PACKAGE
    return _INNER if absolute.startswith(_LIBRARY) else _USERS


def name_of(file: str):
    """A file of the user's as reports name it; None if it is torch's, ours, or of the standard library."""
    name, whose = _look_up(file)
    return name if whose == _USERS else None


def _innermost(places):
    """`train.py:12` for the last of these that is the user's; where none is, for the last of an installed package."""
    package = None
    for file, line in places:
        name, whose = _look_up(file)
        if whose == _USERS:
            return f"{name}:{line}"
        if whose == _PACKAGE and package is None:
            package = f"{name}:{line}"
    return package


def _frames(frame):
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def of(frame):
    """`train.py:12` for the innermost frame of the user's code from this one on, or None."""
    return _innermost(_frames(frame))


def of_traceback(traceback):
    """The same for where an exception came from."""
    places = []
    while traceback is not None:
        places.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    return _innermost(reversed(places))


def is_users(frame) -> bool:
    """Whether a frame is of the user's code."""
    return name_of(frame.f_code.co_filename) is not None

"""Where in the user's code a call was made.

Not here: frames of torch and of this package, which are never the user's.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_names: dict = {}


def name_of(file: str):
    """A file as reports name it; None if it is torch's or ours."""
    known = _names.get(file)
    if known is not None:
        return known or None
    absolute = os.path.abspath(file)
    inner = (_HERE, os.sep + os.path.join("site-packages", "torch", ""), os.sep + os.path.join("dist-packages", "torch", ""))
    if file.startswith("<") or absolute.startswith(_HERE) or any(part in absolute for part in inner[1:]) or file.endswith(_LIBRARY):
        name = ""
    else:
        inside = os.getcwd() + os.sep
        name = absolute[len(inside):] if absolute.startswith(inside) else absolute
    _names[file] = name
    return name or None


# Decorators and context managers of the standard library stand between callers and torch.
_LIBRARY = (f"{os.sep}contextlib.py", f"{os.sep}functools.py", f"{os.sep}threading.py")


def of(frame):
    """`train.py:12` for the innermost frame of the user's code from this one on, or None."""
    while frame is not None:
        name = name_of(frame.f_code.co_filename)
        if name is not None:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_users(frame) -> bool:
    """Whether a frame is of the user's code."""
    return name_of(frame.f_code.co_filename) is not None

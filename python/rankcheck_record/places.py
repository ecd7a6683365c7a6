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


def frame(depth: int = 2):
    """The innermost frame of the user's code, as (code, line); None if there is none."""
    current = sys._getframe(depth)
    while current is not None:
        if name_of(current.f_code.co_filename) is not None:
            return current.f_code, current.f_lineno
        current = current.f_back
    return None


def text(found) -> object:
    """`train.py:12`, or None."""
    return None if found is None else f"{name_of(found[0].co_filename)}:{found[1]}"

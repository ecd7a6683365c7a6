"""The exception that ends a program: noted when nobody has caught it, and once more looked for when the interpreter ends,
for programs that put a hook of their own in the place of this one.

Not here: exceptions that end a thread, for the program goes on.
"""

import atexit
import os
import sys

from . import places, tell

# What an exception says may be as long as it likes.
_MESSAGE_MAX = 200
_told = False


def watch() -> None:
    """Notes the exception that ends the program, from now on."""
    before = sys.excepthook

    def hook(kind, value, traceback):
        _note(kind, value, traceback)
        (before if before is not hook else sys.__excepthook__)(kind, value, traceback)

    sys.excepthook = hook
    atexit.register(_at_exit)


def _at_exit() -> None:
    value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if value is not None:
        _note(type(value), value, value.__traceback__)


def _is_rank() -> bool:
    """Whether this is the process of a rank. One that was started by it has its variables too."""
    processes = sys.modules.get("multiprocessing.process")
    return "RANK" in os.environ and (processes is None or processes.parent_process() is None)


def _note(kind, value, traceback) -> None:
    """Whatever an exception does when it is looked at, the program ends as it would have."""
    global _told
    if _told or not (tell.began() or _is_rank()):
        return
    _told = True
    try:
        lines = str(value).splitlines()
        message = lines[0][:_MESSAGE_MAX] if lines else ""
        tell.note("exception", type=kind.__name__, message=message, place=places.of_traceback(traceback))
    except Exception as error:
        sys.stderr.write(f"rankcheck: the exception is not recorded: {error!r}\n")

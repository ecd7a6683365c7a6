"""Runs at the start of every Python process of a recorded command: activates the recorder, then runs the
sitecustomize that the process would have had without it."""

import os
import sys


def _chain() -> None:
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _activate() -> None:
    try:
        import rankcheck_record.hooks

        rankcheck_record.hooks.activate()
    except Exception as error:  # The program must run as it would without.
        sys.stderr.write(f"rankcheck: Python calls are not recorded: {error!r}\n")


if os.environ.get("RANKCHECK_RECORD_DIR"):
    _activate()
_chain()

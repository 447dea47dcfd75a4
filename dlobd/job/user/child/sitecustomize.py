"""Starts the recorder in a subprocess of a training framework, and then runs the `sitecustomize` of the interpreter.

Python imports this module before the first line of the subprocess.
"""

import contextlib
import importlib
import os
import sys


def _run() -> None:
    here, own = os.path.dirname(os.path.abspath(__file__)), sys.modules[__name__]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    try:
        from dlobd.job.user.torchrun import begin

        begin()
    except Exception as error:  # noqa: BLE001  the subprocess must not fail for its record
        print(f"dlobd: this process records nothing: {error!r}", file=sys.stderr)
    del sys.modules[__name__]
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(__name__)
    sys.modules.setdefault(__name__, own)


if __name__ == "sitecustomize":
    _run()

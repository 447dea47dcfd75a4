"""Starts the recorder in a subprocess, before its first line, and then runs the interpreter's own `sitecustomize`."""

import contextlib
import importlib
import os
import sys

if __name__ == "sitecustomize":
    here, own = os.path.dirname(os.path.abspath(__file__)), sys.modules[__name__]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    try:
        importlib.import_module("dlobd.job.user.torchrun").begin()
    except Exception as error:  # noqa: BLE001  the subprocess must not fail for its record
        print(f"dlobd: this process records nothing: {error!r}", file=sys.stderr)
    del sys.modules[__name__]
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(__name__)
    sys.modules.setdefault(__name__, own)

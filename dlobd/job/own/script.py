"""The driver of the user's own script: hooks, then the script, as Python itself would run it."""

from __future__ import annotations

import io
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.imports import record_packages
from dlobd.job.own.hooks import prepare_driver


def main(argv: list[str]) -> None:
    """Entry of jobs/own.py: `LAUNCHER SPANS_DIR SCRIPT ARGUMENTS...`. Leaves as the script does."""
    launcher, spans_dir, script, *arguments = argv
    # absolute: the script may change its directory
    tracing.start(Path(os.environ.get("LOG_DIRS", spans_dir).split(",")[0]).absolute(), "driver")
    record_packages()
    with tracing.span(kinds.DRIVER):
        with tracing.span(kinds.INSTALL_HOOKS):
            prepare_driver(launcher)
        code = _run(script, arguments)
    tracing.flush()
    sys.exit(code)


def _run(script: str, arguments: list[str]) -> str | int | None:
    """Runs the script as `__main__`; returns what it exits with."""
    module = ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    # functions of this module pickle by value, as those of any script
    sys.modules["__main__"] = module
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        with tracing.span(kinds.USER_CODE):
            with io.open_code(script) as file:
                code = compile(file.read(), script, "exec")
            exec(code, vars(module))
    except SystemExit as error:
        if error.code:
            cause = _status_error() or (
                f"the script exited with code {error.code}" if isinstance(error.code, int) else str(error.code)
            )
            tracing.instant(kinds.JOB_FAILED, cause=cause)
        return error.code
    except BaseException as error:  # noqa: BLE001  whatever it was, the script has ended by it
        # the traceback that the user sees is the script's: without dlobd's frame
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error, error.__traceback__)
        tracing.instant(kinds.JOB_FAILED, cause=_last_line(error))
        return 1
    return 0


def _last_line(error: BaseException) -> str:
    """The last line of its traceback; for an error that came through Spark, the task's."""
    task = _task_error(str(error))
    return task or traceback.format_exception_only(error)[-1].strip().splitlines()[0]


def _status_error() -> str | None:
    """TensorFlowOnSpark exits where its start job failed, and keeps the reason to itself."""
    cluster = sys.modules.get("tensorflowonspark.TFCluster")
    error = getattr(cluster, "tf_status", {}).get("error")
    return (_task_error(error) or error.splitlines()[0]) if error else None


def _task_error(text: str) -> str | None:
    """The last line of the Python traceback that a failed task put into Spark's message."""
    _, found, rest = text.rpartition("Traceback (most recent call last):")
    if not found:
        return None
    lines = [line for line in rest.splitlines() if line and not line.startswith((" ", "\t"))]
    return lines[0] if lines else None

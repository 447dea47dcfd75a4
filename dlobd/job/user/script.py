"""Runs a user's script on the driver: installs the hooks, and then runs the script like Python."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import ModuleType

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.failure import cause_in, error_line
from dlobd.job.launchers.imports import record_packages
from dlobd.job.user.hooks import prepare_driver


def main(argv: list[str]) -> None:
    """Run jobs/user.py, `LAUNCHER SPANS_DIR SCRIPT ARGUMENTS...`, and exit as the script does."""
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
    module = ModuleType("__main__")
    module.__file__ = script
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    # functions of `__main__` pickle by value, as in any script
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
    except BaseException as error:  # noqa: BLE001  any error ends the script
        # remove dlobd's frame from the user's traceback
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error, error.__traceback__)
        tracing.instant(kinds.JOB_FAILED, cause=cause_in(str(error)) or error_line(error))
        return 1
    return 0


def _status_error() -> str | None:
    """Return the error of a failed start job, which TensorFlowOnSpark does not print; None if there is no error."""
    cluster = sys.modules.get("tensorflowonspark.TFCluster")
    error = getattr(cluster, "tf_status", {}).get("error")
    return (cause_in(error) or error.splitlines()[0]) if error else None

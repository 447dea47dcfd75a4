"""Runs a user's script on the driver like Python: installs the hooks, and then runs the script in `__main__`."""

import atexit
import io
import os
import sys
from contextlib import ExitStack
from importlib.machinery import SourceFileLoader
from pathlib import Path
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import NoReturn

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.failure import MAX_CAUSE, cause_in, error_line, with_option
from dlobd.job.launchers.imports import record_packages
from dlobd.job.user.hooks import prepare_driver

KEPT = ("__annotations__", "__builtins__", "__cached__", "__name__", "__package__", "__spec__")
"""Names that `__main__` has before the first line of any script; their values do not depend on the script."""


def main(argv: list[str]) -> None:
    """Run jobs/user.py, `LAUNCHER SPANS_DIR SCRIPT ARGUMENTS...`. The exception of the script, if any, is raised again:
    Python then prints the traceback, and exits as without dlobd."""
    launcher, spans_dir, script, *arguments = argv
    tracing.start(os.environ.get("LOG_DIRS", spans_dir).split(",")[0], "driver")
    record_packages()
    # Python runs this handler last, after the script's threads and exit handlers
    spans = ExitStack()
    atexit.register(spans.close)
    spans.enter_context(tracing.span(kinds.DRIVER))
    with tracing.span(kinds.INSTALL_HOOKS):
        prepare_driver(launcher)
        _record_exit(spans)
    spans.enter_context(tracing.span(kinds.USER_CODE))
    tracing.flush()  # the script may end at once, by a signal
    try:
        _run(script, arguments)
    finally:
        tracing.flush()


def _record_exit(spans: ExitStack) -> None:
    """End the spans at a call of os._exit, which runs no exit handler."""
    leave, driver = os._exit, os.getpid()

    def exit_now(status: int) -> NoReturn:
        if os.getpid() == driver:
            if status:
                tracing.instant(kinds.JOB_FAILED, cause=f"the script exited with code {status}")
            spans.close()
            tracing.flush()
        leave(status)

    os._exit = exit_now


def _run(script: str, arguments: list[str]) -> None:
    file = os.path.abspath(script)
    variables = _prepare_process(script, file, arguments)
    code: CodeType | None = None
    try:
        with io.open_code(file) as source:
            # otherwise the script would inherit this module's imports from `__future__`
            code = compile(source.read(), file, "exec", dont_inherit=True)
        exec(code, variables)
    except SystemExit as error:
        if error.code:
            cause = (
                _shutdown_timeout(error)  # it cancels the start job, which then has an error, too
                or _status_error()
                or (f"the script exited with code {error.code}" if isinstance(error.code, int) else str(error.code))
            )
            tracing.instant(kinds.JOB_FAILED, cause=cause[:MAX_CAUSE])
        raise
    except BaseException as error:
        tracing.instant(kinds.JOB_FAILED, cause=with_option(cause_in(str(error)) or error_line(error))[:MAX_CAUSE])
        _begin_traceback_at(code)
        raise


def _prepare_process(script: str, file: str, arguments: list[str]) -> dict[str, object]:
    """Change `sys` and the module `__main__` to what `python SCRIPT ARGUMENTS...` sets. Return the namespace of
    `__main__`, whose functions pickle by value."""
    variables = vars(sys.modules["__main__"])
    for name in variables.keys() - KEPT:
        del variables[name]
    variables.update(__doc__=None, __file__=file, __loader__=SourceFileLoader("__main__", file))
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(file).resolve().parent)
    sys.orig_argv[-len(sys.argv) :] = [script, *arguments]
    sys.argv = [script, *arguments]
    return variables


def _begin_traceback_at(code: CodeType | None) -> None:
    """Remove dlobd's frames from the traceback that ends the script; None: the script has no frame."""
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = shown
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        error.__traceback__ = sys.last_traceback = trace
        shown(kind, error, trace)

    sys.excepthook = hook


def _status_error() -> str | None:
    """Return the error of a failed start job, which TensorFlowOnSpark does not print; None if there is no error."""
    cluster = sys.modules.get("tensorflowonspark.TFCluster")
    error = getattr(cluster, "tf_status", {}).get("error")
    return (cause_in(error) or error.splitlines()[0]) if error else None


def _shutdown_timeout(error: BaseException) -> str | None:
    """Return the reason of an exit by the handler of TensorFlowOnSpark's alarm; None for any other exit."""
    frames = {frame.f_code.co_name: frame for frame, _ in walk_tb(error.__traceback__)}
    if "timeout_handler" not in frames or "shutdown" not in frames:
        return None
    timeout_s = frames["shutdown"].f_locals.get("timeout")
    return f"TFCluster.shutdown ended the job: its nodes did not end within timeout = {timeout_s} s"

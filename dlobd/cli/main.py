"""Entry point of the command line: runs a verb, reports an error in one line, and returns a documented exit code.

Results go to stdout, progress and failures to stderr. The traceback of an unexpected failure goes into a file; the
error line has its path.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dlobd import __version__
from dlobd.cli import (
    check,
    clean,
    cluster,
    collect,
    compare,
    data,
    doctor,
    export,
    report,
    run,
    selftest,
    show,
    submit,
    sweep,
    trace,
    verify,
)
from dlobd.cli import list as listing
from dlobd.errors import DlobdError, Interrupted, SetupError, UsageError

app = typer.Typer(
    name="dlobd",
    help="Run a deep-learning job through HDFS, Spark on YARN and TensorFlow, and show the time of each layer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_FIRST_VERBS = (run, sweep, submit, collect, show, report, trace, export, verify, compare, check, doctor)
for module in (*_FIRST_VERBS, selftest):
    app.command()(getattr(module, module.__name__.rpartition(".")[2]))
app.command(name="list")(listing.list_)
app.command()(clean.clean)
app.add_typer(cluster.app, name="cluster")
app.add_typer(data.app, name="data")


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"dlobd {__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        command = typer.main.get_command(app)
        # typer's own runner would replace the exit codes of Ctrl-C and of a closed stdout
        with command.make_context("dlobd", list(sys.argv[1:] if argv is None else argv)) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except DlobdError as error:
        return _fail(error.line, error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted.", Interrupted.exit_code)
    except BrokenPipeError:
        # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports an error at exit
        return 0
    except typer.TyperException as error:
        message = error.format_message()  # empty if the user requested help, which is printed already
        used = getattr(error, "ctx", None)  # of the verb
        remedy = f"{used.command_path if used else 'dlobd'} --help"
        return _fail(f"{message} Next: {remedy}", UsageError.exit_code) if message else UsageError.exit_code
    except ModuleNotFoundError as error:
        if not error.name or error.name.split(".")[0] == "dlobd":
            return _fail(f"unexpected failure: {_unexpected()} Its traceback is in {_keep_traceback()}", 1)
        missing = SetupError(
            f"the Python package {error.name} is not installed; the base package of dlobd only reads bundles.",
            "pip install 'dlobd[run]'",
        )
        return _fail(missing.line, missing.exit_code)
    except Exception:  # noqa: BLE001  the user gets one line; the traceback is kept in a file
        return _fail(f"unexpected failure: {_unexpected()} Its traceback is in {_keep_traceback()}", 1)


def _fail(line: str, code: int) -> int:
    print("dlobd: " + " ".join(line.split()), file=sys.stderr)
    return code


def _interrupt(*_: object) -> NoReturn:
    # handle the signal only once: a second signal must not interrupt the stop of daemons
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _unexpected() -> str:
    kind, error, _ = sys.exc_info()
    return f"{kind.__name__ if kind else ''}: {str(error)[:200]}."


def _keep_traceback() -> Path:
    from dlobd.bundle.redaction import redact
    from dlobd.paths import cache_dir

    text = redact(traceback.format_exc().encode())
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.txt"
    for folder in (cache_dir() / "crashes", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text)
            return folder / name
        except OSError:
            continue
    return Path("no file: no directory is writable")

"""The command line as a whole: its verbs, one line for an expected failure, a documented exit code for everything.

Results go to stdout, progress and failures to stderr. The traceback of an unexpected failure goes into a file, whose
path is in the line.
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
    help="Where did the time go? Runs a deep-learning job through HDFS, Spark on YARN and TensorFlow, "
    "and shows how long each layer took.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in (
    run.run, sweep.sweep, submit.submit, collect.collect, show.show, report.report, trace.trace, export.export,
    verify.verify, compare.compare, check.check, doctor.doctor, selftest.selftest,
):  # fmt: skip
    app.command()(verb)
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
    """Runs one command line; returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        command = typer.main.get_command(app)
        # typer's own way to run it would turn Ctrl-C and a closed stdout into exit codes of its choice
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
        # the reader of the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at exit
        return 0
    except typer.TyperException as error:
        message = error.format_message()  # empty where only help was asked for, and has been printed
        return _fail(f"{message} Next: dlobd --help", UsageError.exit_code) if message else UsageError.exit_code
    except ModuleNotFoundError as error:
        if not error.name or error.name.split(".")[0] == "dlobd":
            return _fail(f"unexpected failure: {_last_words()} Its traceback is in {_keep_traceback()}", 1)
        missing = SetupError(
            f"the Python package {error.name} is not installed; dlobd alone only reads bundles.",
            "pip install 'dlobd[run]'",
        )
        return _fail(missing.line, missing.exit_code)
    except Exception:  # noqa: BLE001  the user gets one line, whatever it was; the traceback is kept
        return _fail(f"unexpected failure: {_last_words()} Its traceback is in {_keep_traceback()}", 1)


def _fail(line: str, code: int) -> int:
    print("dlobd: " + " ".join(line.split()), file=sys.stderr)
    return code


def _interrupt(*_: object) -> NoReturn:
    # once: a second signal must not break off the stopping of daemons
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _last_words() -> str:
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
    return Path("nowhere: no directory could be written")

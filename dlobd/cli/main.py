"""Entry point of the command line: runs a verb, reports an error in one line, and returns a documented exit code.

Results go to stdout, progress and failures to stderr. The traceback of an unexpected failure goes into a file; the
error line has its path.
"""

import contextlib
import difflib
import errno
import io
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

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
    history,
    import_,
    micro,
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
from dlobd.paths import config_file

COMPLETION = "_DLOBD_COMPLETE"
"""Variable by which the shell asks for proposals."""

NEAR = 0.75
"""Least similarity of an unknown option to an option that the message proposes."""

app = typer.Typer(
    name="dlobd",
    help="Run a deep-learning job through HDFS, Spark on YARN and TensorFlow, and show the time of each layer.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for module in (run, sweep, submit, collect, history, show, report, trace, export, verify, compare, check, doctor):
    app.command()(getattr(module, module.__name__.rpartition(".")[2]))
app.command()(micro.micro)
app.command()(selftest.selftest)
app.command(name="list")(listing.list_)
app.command(name="import")(import_.import_)
app.command()(clean.clean)
app.add_typer(cluster.app, name="cluster")
app.add_typer(data.app, name="data")


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", "-V", help="Print the version.")] = False
) -> None:
    if version:
        print(f"dlobd {__version__}")
        raise typer.Exit
    if config_file().exists():
        from dlobd.experiment import user_config

        found = user_config.read()
        paths = {"out": found.out, "hadoop_conf": found.hadoop_conf}
        defaults = {name: Path(path).expanduser() for name, path in paths.items() if path}
        context.default_map = _default_map(context.command, defaults)


def _default_map(command: Any, defaults: Mapping[str, Path]) -> dict[str, Any]:
    """Return the values of the configuration file by command and parameter."""
    if commands := getattr(command, "commands", None):
        return {name: _default_map(each, defaults) for name, each in commands.items()}
    return {each.name: defaults[each.name] for each in command.params if each.name in defaults}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        command = typer.main.get_command(app)
        if COMPLETION in os.environ:
            return _answer_completion(command)
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
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):  # rich's
            raise
        # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports an error at exit
        return 0
    except typer.TyperException as error:
        return _usage_error(error)
    except MemoryError:
        return _fail(SetupError("out of memory.", "free memory, or use a larger machine").line, SetupError.exit_code)
    except Exception as error:  # noqa: BLE001  the user gets one line; the traceback is kept in a file
        if isinstance(error, ModuleNotFoundError) and (error.name or "dlobd").split(".")[0] != "dlobd":
            what = f"the Python package {error.name} is not installed; the base package of dlobd only reads bundles."
            return _fail(SetupError(what, "pip install 'dlobd[run]'").line, SetupError.exit_code)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            what = f"{error.filename or 'a file'} cannot be written: {error.strerror}."
            return _fail(SetupError(what, "free disk space, or set TMPDIR").line, SetupError.exit_code)
        what = f"unexpected failure: {type(error).__name__}: {str(error)[:200]}."
        return _fail(f"{what} Its traceback is in {_keep_traceback()}", 1)


def _answer_completion(command: Any) -> int:
    """Print the proposals for the shell that asks by `COMPLETION`; return the exit code.

    bash splits words at `=`, and completes only the last part: it gets the proposals for KEY=VALUE without `KEY=`."""
    key = ""
    if os.environ[COMPLETION] == "complete_bash":
        words = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
        whole = re.sub("\n=\n?", "=", "\n".join(words)).split("\n")
        os.environ |= {"COMP_WORDS": "\n".join(whole), "COMP_CWORD": str(len(whole) - 1)}
        key = f"{whole[-1].partition('=')[0]}=" if "=" in words[-2:] else ""
    with contextlib.redirect_stdout(io.StringIO()) as proposed, contextlib.suppress(SystemExit):
        command.main(prog_name="dlobd")
    print("".join(line.removeprefix(key) for line in proposed.getvalue().splitlines(keepends=True)), end="")
    return 0


def _usage_error(error: Any) -> int:
    """Print the message of typer, with its hints only where they are near, and the help of the command."""
    if hints := getattr(error, "possibilities", None):
        error.possibilities = difflib.get_close_matches(error.option_name, hints, cutoff=NEAR)
    if not (message := error.format_message()):  # the user requested help, which is printed already
        return UsageError.exit_code
    stop = "" if message.endswith((".", "?")) else "."
    path = error.ctx.command_path if error.ctx else "dlobd"
    return _fail(f"{message}{stop} Next: {path} --help", UsageError.exit_code)


def _fail(line: str, code: int) -> int:
    print("dlobd: " + " ".join(line.split()), file=sys.stderr)
    return code


def _interrupt(*_: object) -> NoReturn:
    # handle the signal only once: a second signal must not interrupt the stop of daemons
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


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

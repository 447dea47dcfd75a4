"""Options that several commands share, with the shell's proposals, and the exit code of each run status."""

from pathlib import Path
from typing import Annotated

import typer

from dlobd.errors import Interrupted, RunFailed, RunInvalid, UsageError
from dlobd.paths import RUNS as RUNS

Words = list[tuple[str, str]]
"""Proposals of the shell's completion, with their descriptions."""


def propose_built_in(context: typer.Context) -> Words:
    """Propose built-in experiments or, for `dlobd sweep`, sweeps; nothing for the arguments of a script. Without a
    proposal, bash proposes files."""
    from dlobd.experiment.files import titles

    kind = "sweep" if context.info_name == "sweep" else "experiment"
    return [] if context.params.get("job") else titles(kind)


def propose_settings(incomplete: str) -> Words:
    """Propose `KEY=`; for a single key the members of its registry, such as `model=lenet`."""
    from dlobd.axes import REGISTRIES
    from dlobd.experiment.settings import SETTINGS

    key, sign, _ = incomplete.partition("=")
    keys = [name for name in SETTINGS if name == key or (not sign and name.startswith(key))]
    if len(keys) == 1 and isinstance(kind := SETTINGS[keys[0]].about.valid, str) and kind:
        return [(f"{keys[0]}={row.name}", row.title) for row in REGISTRIES[kind]]
    return [] if sign else [(f"{name}=", SETTINGS[name].about.text) for name in keys]


def propose_runs(context: typer.Context) -> Words:
    """Propose `latest` and run IDs, the newest first."""
    from dlobd.bundle.store import bundles
    from dlobd.experiment.user_config import runs_dir

    every = bundles(Path(context.params["out"]) if context.get_parameter_source("out") else runs_dir())
    return [("latest", "the last run"), *((one.run_id, one.path.parent.name) for one in reversed(every))]


Out = Annotated[Path, typer.Option("--out", envvar="DLOBD_OUT", help="Directory of run bundles.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and the spark-submit command; start nothing.")]
LATEST_HELP = "latest (the last finished run)"
RunRef = Annotated[
    str,
    typer.Argument(metavar="[RUN]", help=f"Bundle path, run ID, or {LATEST_HELP}.", autocompletion=propose_runs),
]
HadoopConf = Annotated[
    Path | None,
    typer.Option(
        "--hadoop-conf",
        metavar="DIR",
        envvar="DLOBD_HADOOP_CONF",
        parser=lambda text: Path(text) if str(text) else None,
        help="Configuration directory (HADOOP_CONF_DIR) of an external cluster; '': the embedded cluster.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark for dlobd's spark-submit; repeatable."),
]
Queue = Annotated[str, typer.Option("--queue", metavar="NAME", help="Queue of YARN for the job.")]
Archive = Annotated[
    Path | None,
    typer.Option("--archive", help="With --hadoop-conf: conda-pack or venv-pack archive with the Python environment."),
]
JobPython = Annotated[
    str | None,
    typer.Option("--python", metavar="INTERPRETER", help="Python of your script, with this path on each node."),
]
With = Annotated[list[str] | None, typer.Option("--with", metavar="PACKAGE", help="Package for a script; repeatable.")]
Requirements = Annotated[Path | None, typer.Option("--requirements", metavar="FILE", help="Requirements file of pip.")]
Repeats = Annotated[int, typer.Option("--repeats", min=1, max=1000, help="Repetitions; rerun the command to resume.")]
OrderSeed = Annotated[int, typer.Option("--seed", help="Seed for the run order.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="KIND",
        help="Accept a difference in machine, versions, code, recording, page-cache or order; busy: accept runs on a "
        "busy machine. Repeatable.",
    ),
]

EXIT_CODES = {
    "ok": 0,
    "failed": RunFailed.exit_code,
    "invalid": RunInvalid.exit_code,
    "interrupted": Interrupted.exit_code,
}


def allowed(kinds: list[str] | None) -> list[str]:
    """Return the kinds of `--allow`, or none. Raises UsageError if a kind does not exist."""
    from dlobd.compare.compatibility import KINDS
    from dlobd.registry import unknown

    for kind in kinds or ():
        if kind not in KINDS:
            raise UsageError(unknown("kind", kind, KINDS), "dlobd compare --help")
    return kinds or []


def share(text: str) -> float:
    """Parse a fraction, such as `5%` or `0.05`. Raises BadParameter unless it is between 0 and 1."""
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if rest or not 0 < value < 1:
        raise typer.BadParameter(f"{text!r} is not a fraction between 0 and 1, such as 5% or 0.05")
    return value

"""Words that the shell proposes for arguments: experiments, sweeps, settings and runs."""

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import typer

VARIABLE = "_DLOBD_COMPLETE"
"""Variable by which the shell asks for proposals."""

Words = list[tuple[str, str]]
"""Proposals with their descriptions."""


def answer(command: Any) -> int:
    """Print the proposals for the shell that asks by `VARIABLE`; return the exit code.

    bash splits words at `=`, and completes only the last part: it gets the proposals for KEY=VALUE without `KEY=`."""
    key = ""
    if os.environ[VARIABLE] == "complete_bash":
        words = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
        whole = re.sub("\n=\n?", "=", "\n".join(words)).split("\n")
        os.environ |= {"COMP_WORDS": "\n".join(whole), "COMP_CWORD": str(len(whole) - 1)}
        key = f"{whole[-1].partition('=')[0]}=" if "=" in words[-2:] else ""
    with contextlib.redirect_stdout(io.StringIO()) as proposed, contextlib.suppress(SystemExit):
        command.main(prog_name="dlobd")
    print("".join(line.removeprefix(key) for line in proposed.getvalue().splitlines(keepends=True)), end="")
    return 0


def built_in(context: typer.Context) -> Words:
    """Propose built-in experiments or, for `dlobd sweep`, sweeps; nothing for the arguments of a script. Without a
    proposal, bash proposes files."""
    from dlobd.experiment.files import titles

    kind = "sweep" if context.info_name == "sweep" else "experiment"
    return [] if context.params.get("job") else titles(kind)


def settings(incomplete: str) -> Words:
    """Propose `KEY=`; for a single key the members of its registry, such as `model=lenet`."""
    from dlobd.axes import REGISTRIES
    from dlobd.experiment.settings import SETTINGS

    key, sign, _ = incomplete.partition("=")
    keys = [name for name in SETTINGS if name == key or (not sign and name.startswith(key))]
    if len(keys) == 1 and isinstance(kind := SETTINGS[keys[0]].about.valid, str) and kind:
        return [(f"{keys[0]}={row.name}", row.title) for row in REGISTRIES[kind]]
    return [] if sign else [(f"{name}=", SETTINGS[name].about.text) for name in keys]


def runs(context: typer.Context) -> Words:
    """Propose `latest` and run IDs, the newest first."""
    from dlobd.bundle.store import bundles
    from dlobd.experiment.user_config import runs_dir

    every = bundles(Path(context.params["out"]) if context.get_parameter_source("out") else runs_dir())
    return [("latest", "the last run"), *((one.run_id, one.path.parent.name) for one in reversed(every))]

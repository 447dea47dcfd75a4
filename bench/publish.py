"""Writes measured tables between markers of docs/results.md, below machine and versions, and as JSON beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.tables import Table
from dlobd.attribution.statistics import spread
from dlobd.bundle.run import Run
from dlobd.paths import replace_file
from dlobd.report.repeats import left_out
from dlobd.run import provenance
from dlobd.run.series import Series

PAGE = "results.md"
"""The page below docs/ that has the markers of every command."""

BUSY_PERCENT = 25.0
"""Cores busier than this before a run: something else runs on the machine."""


def markers(name: str) -> tuple[str, str]:
    """The lines of a page between which `make NAME` writes."""
    return f"<!-- {name}: begin, made by make {name} -->", f"<!-- {name}: end -->"


def page(path: Path, name: str, facts: Sequence[str], parts: Sequence[str]) -> None:
    """Puts facts as a list, then the parts, between a page's markers; what is around them stays. A page without markers
    gets them at its end; one that is not there is made."""
    begin, end = markers(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    before, _, rest = (path.read_text() if path.exists() else "").partition(begin)
    listed = ["\n".join(f"- {fact}" for fact in facts)] if facts else []
    path.write_text(before + "\n\n".join([begin, *listed, *parts, end]) + rest.partition(end)[2])


def publish(docs: Path, name: str, facts: Sequence[str], tables: Sequence[Table]) -> None:
    """Writes tables below facts between the markers of a command."""
    page(docs / PAGE, name, facts, [table.markdown() for table in tables])


def store(docs: Path, name: str, document: Mapping[str, Any]) -> None:
    """Writes the figures of a command into docs/NAME.json; `bench.republish` makes the tables from it again."""
    docs.mkdir(parents=True, exist_ok=True)
    replace_file(docs / f"{name}.json", (json.dumps(document, indent=1) + "\n").encode())


def machine(runs: Sequence[Run]) -> list[str]:
    """The machine, the versions and the commits of the runs, one line each."""
    here = provenance.platform()
    memory = int(here["memory_bytes"] or 0) / 2**30
    names = ("pyspark", "tensorflow", "java")
    # a native run has no Java
    used = sorted({(version, name) for run in runs for name in names if (version := run.versions.get(name))})
    commits = {(git.commit or "-")[:12] + " with changes" * bool(git.dirty) for run in runs if (git := run.git)}
    bad = ", ".join(f"{run.run_id} {run.status}" for run in runs if run.status != "ok")
    size = f"{here['cores']} cores, {memory:.0f} GiB"
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {here['processor']}, {size}, {here['distribution']}",
        ", ".join(f"{name} {version}" for version, name in used) + f"; dlobd at {', '.join(sorted(commits)) or '-'}",
    ]
    if len(commits) > 1:
        lines.append("**These runs come from several states of the code: they do not compare.**")
    return lines + ([f"**Left out: {left_out(runs)} ({bad})**"] if bad else [])


def busy_before(*every: Series) -> list[float]:
    """Percent of the cores before each run that is over; not before one that was removed, to be made again."""
    looked = ((one.busy(), one.ended().values()) for one in every)
    return [busy[bundle.run_id] for busy, bundles in looked for bundle in bundles]


def loaded(busy: Sequence[float]) -> list[str]:
    """How busy the machine was before the runs; a warning if something else used it."""
    found = spread(busy)
    if found.median is None or found.high is None:
        return []
    lines = [f"cores busy before a run: median {found.median:.0f} %, at most {found.high:.0f} %"]
    crowded = sum(percent > BUSY_PERCENT for percent in busy)
    if crowded:
        lines.append(
            f"**Something else used the machine before {crowded} of {len(busy)} runs: do not quote these figures.**"
        )
    return lines

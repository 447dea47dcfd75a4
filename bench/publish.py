"""Publishing of measurements as JSON and between the markers of docs/results.md, with machine and versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.tables import Table
from dlobd.compare.compatibility import BUSY_PERCENT
from dlobd.compare.median import spread
from dlobd.experiment.series import Series
from dlobd.paths import replace_file
from dlobd.record.run import Run
from dlobd.report.repeats import left_out
from dlobd.run import provenance

PAGE = "results.md"
"""Page in docs/ with the markers of all commands."""


def markers(name: str) -> tuple[str, str]:
    """Return the two marker lines of a page between which `make NAME` writes."""
    return f"<!-- {name}: begin, made by make {name} -->", f"<!-- {name}: end -->"


def page(path: Path, name: str, facts: Sequence[str], parts: Sequence[str]) -> None:
    """Replace the text between the markers of a page by a list of facts and the parts.

    If the page has no markers, append them; create a missing page.
    """
    begin, end = markers(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    before, _, rest = (path.read_text() if path.exists() else "").partition(begin)
    listed = ["\n".join(f"- {fact}" for fact in facts)] if facts else []
    path.write_text(before + "\n\n".join([begin, *listed, *parts, end]) + rest.partition(end)[2])


def of_runs(
    docs: Path, name: str, runs: Sequence[Run], busy: Sequence[float], parts: Sequence[str], doubts: Sequence[str] = ()
) -> Path:
    """Write machine, load before the runs, warnings in bold, and the parts; return the path of the page."""
    facts = [*machine(runs), *loaded(busy), *(f"**{doubt}**" for doubt in doubts)]
    page(docs / PAGE, name, facts, parts)
    return docs / PAGE


def publish(docs: Path, name: str, facts: Sequence[str], tables: Sequence[Table]) -> None:
    """Replace the command's section of the results page by the facts, followed by the tables."""
    page(docs / PAGE, name, facts, [table.markdown() for table in tables])


def store(docs: Path, name: str, document: Mapping[str, object]) -> Path:
    """Write the data of a page into docs/NAME.json, from which `python -m bench --republish` writes the page again."""
    path = docs / f"{name}.json"
    docs.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(document, indent=1) + "\n").encode())
    return path


def machine(runs: Sequence[Run]) -> list[str]:
    """Format machine, versions and commits of the runs as lines."""
    here = provenance.platform()
    memory = int(here["memory_bytes"] or 0) / 2**30
    names = ("pyspark", "tensorflow", "java")
    # a native run does not use Java
    used = sorted({(version, name) for run in runs for name in names if (version := run.versions.get(name))})
    commits = {(git.commit or "-")[:12] + " with changes" * bool(git.dirty) for run in runs if (git := run.git)}
    bad = ", ".join(f"{run.run_id} {run.status}" for run in runs if run.status != "ok")
    size = f"{here['cores']} cores, {memory:.0f} GiB"
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {here['processor']}, {size}, {here['distribution']}",
        ", ".join(f"{name} {version}" for version, name in used) + f"; dlobd at {', '.join(sorted(commits)) or '-'}",
    ]
    if len(commits) > 1:
        lines.append("**These runs come from several commits and are not comparable.**")
    return lines + ([f"**Left out: {left_out(runs)} ({bad})**"] if bad else [])


def busy_before(*every: Series) -> list[float]:
    """Return the load of the cores before each finished run, in percent."""
    finished = {bundle.run_id for series in every for bundle in series.ended().values()}
    return [begun.busy_percent for series in every for begun in series.begun if begun.run_id in finished]


def loaded(busy: Sequence[float]) -> list[str]:
    """Format the load of the machine before the runs, with a warning if other programs used it."""
    found = spread(busy)
    if found.median is None or found.high is None:
        return []
    lines = [f"cores busy before a run: median {found.median:.0f} %, at most {found.high:.0f} %"]
    crowded = sum(percent > BUSY_PERCENT for percent in busy)
    if crowded:
        lines.append(
            f"**Other programs used the machine before {crowded} of {len(busy)} runs: do not quote these figures.**"
        )
    return lines

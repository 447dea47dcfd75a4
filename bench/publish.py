"""Writes docs/bench.md's tables between its markers, and docs/bench.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.tables import Table
from dlobd.attribution.statistics import spread
from dlobd.bundle.run import Run
from dlobd.report.repeats import left_out
from dlobd.run import provenance

BUSY_PERCENT = 25.0
"""Cores busier than this before a run: something else runs on the machine."""

BEGIN, END = "<!-- bench: begin, made by make bench -->", "<!-- bench: end -->"


def publish(docs: Path, tables: Sequence[Table], busy: Sequence[float], runs: Sequence[Run]) -> None:
    """`busy` is the machine's load before each run, in percent of its cores."""
    facts = [*machine(runs), *loaded(busy)]
    body = "\n\n".join([BEGIN, "\n".join(f"- {fact}" for fact in facts), *(t.markdown() for t in tables), END])
    path = docs / "bench.md"
    before, _, rest = path.read_text().partition(BEGIN)
    path.write_text(before + body + rest.partition(END)[2])
    values = {table.title: table.values for table in tables}
    document = {"facts": facts, "busy_percent": list(busy), "runs": [run.run_id for run in runs], "tables": values}
    (docs / "bench.json").write_text(json.dumps(document, indent=1) + "\n")


def machine(runs: Sequence[Run]) -> list[str]:
    """The machine, the versions and the commits of the runs, one line each."""
    here = provenance.platform()
    memory = int(here["memory_bytes"] or 0) / 2**30
    used = sorted({(run.versions.get(name) or "-", name) for run in runs for name in ("pyspark", "tensorflow", "java")})
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

"""Makes what in docs/ must not drift from the code: `layers.md`, `metrics.md`, `audits.md`, `selftest.md`, a page a
command in `commands/`, and the terminal picture.

    python docs/generate.py                    write all pages
    python docs/generate.py --check            exit 1 if one of them is stale
    python docs/generate.py picture BUNDLE     write breakdown.svg from a real run

Names, units, descriptions and formulas come from `dlobd.layers`, `dlobd.attribution.audits`, `dlobd.record` and
`dlobd.schema`. `command_pages.py`, beside this file, has the pages of the commands.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from dlobd.attribution import spark_metrics
from dlobd.attribution.audits import AUDITS
from dlobd.attribution.degrees import BETWEEN_MARKS, MEASURED
from dlobd.bundle import store
from dlobd.fields import numbers
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report import terminal
from dlobd.selftest import report
from dlobd.selftest.plans import SIZES_S
from dlobd.selftest.points import POINTS

DOCS = Path(__file__).parent

MADE = """\
<!-- Made by docs/generate.py from dlobd/layers.py, dlobd/attribution/degrees.py, dlobd/record/ and
dlobd/schema.py. -->"""

LAYERS_PAGE = """\
# Layers

{made}

A layer is a place where time can go. The wall time of a run is split across these layers and nothing else; the parts
sum to the wall exactly. [methodology.md](methodology.md) describes how.

"Opens" and "closes" are the two events between which time can belong to the layer. Inside, the innermost open span
decides: HDFS calls made by the trainer count as HDFS, not TensorFlow.

{table}

`{unattributed}` is not a layer. It is time of the main lane in which no span was open, or whose layer a [missing
source](missing-evidence.md) would have told. Time that belongs to a layer, but that no evidence explains, is its
`unexplained` part; the report hatches both and counts them together.

## Names and degrees of evidence

The spans that each layer's time can have, and how well the own time of each is known: the two
[degrees](methodology.md#degrees-of-evidence) that follow from a span's name. A star stands for any words. A few names
are of several layers: the same call on behalf of each of them.

{degrees}

The colours are from the colour-blind-safe Okabe-Ito palette.
"""

AUDITS_PAGE = """\
# Audits

<!-- Made by docs/generate.py; change that, or dlobd/attribution/audits. -->

An audit takes one quantity from two sources, and checks whether they agree. Every run is audited when it is recorded;
`audits` in run.json has both figures and their sources, `dlobd show` counts the verdicts, and `dlobd verify` repeats
the audits. There are {count}.

| Verdict | Meaning |
|---|---|
| `pass` | the figures agree |
| `fail` | they contradict each other: a run that succeeded is `invalid`, whichever of the two is right |
| `unknown` | no verdict; `detail` says why |

A verdict is `unknown` if a source is missing (plain processes have no DataNodes); if the audit does not apply to the
way of running (dlobd does not count your own script's samples; a run by hand has YARN's window); or if the figures
differ and the evidence itself explains it (a DataNode died, a Java HDFS client logged a warning, the cluster is
external and its logs may be incomplete, evidence from other hosts was aligned by their wall clocks). An audit marked
"whole" applies only to jobs that succeeded.

{table}

The number of "passes" over the input is the number of epochs; with the launcher `barrier` and `input = "feed"` it is
one, because later epochs come from the tasks' memory. The files of a bundle are checked by their sha256 in `hashes`,
which `dlobd verify` and `dlobd show` compare.

A machine that needs 200 ns or more to read its clock, such as an emulated one, is slower than others in all it does:
marks side by side may lie further apart there, by as many times as that is more than 100 ns.
"""

SELFTEST_PAGE = """\
# Self-test

<!-- Made by docs/generate.py from docs/selftest.json, the output of `dlobd selftest --json`. -->

Is the breakdown right? `dlobd selftest` puts delays of known size into real runs on the embedded cluster, and looks for
each one in the breakdown: in the startup of a job, its feed, its training and its end, in every layer.

```
dlobd selftest             five runs that cover every point, about five minutes; exit code 6 if a delay is not found
dlobd selftest --full      every point with {sizes}, and controls, about 80 minutes
```

The test is blind: the injector records by its own clock when it delayed the job, in a file that attribution never sees.
It is scored three times.

1. **Where the time of a delay went.** Each interval is compared with the attributed wall. Time that attribution gave to
   the delayed layer is recovered; time that it gave to other layers, or left unexplained or unattributed, is not.
   Target, for every single delay: at least {right:.0%} in its own layer and at most {wrong:.0%} in any other.
2. **What a layer got in all** (`--full`). Each run with delays has a control, just before or after it, with the
   same delays, each of no length: what the injector itself costs is in both. What a layer got more than in the control
   has to be what was injected into it, ripple effects included. Six such blocks give an interval of the median error:
   from the lowest to the highest, which holds it with 96.9 %. Target: zero lies in it for at least {holding:.0%} of the
   layers and ways. The rows are not corrected for their number. One run before all others warms the cluster up, and is
   not scored.
3. **How much of a run this proves.** The share of a control's wall in spans that some delay was put into. Target: at
   least {touched:.0%}. The table names what is left. "Without sleeps" leaves out waits whose length was read from the
   run: nothing is done in them, so that nothing can be delayed.

## Injection points

{points}

By `signal`: the processes named are stopped (SIGSTOP), which to all others looks like a daemon that hangs or a machine
that pauses, from the line in a log that says so on. By `application`: through YARN itself. By `control group`:
the kernel lets the DataNodes read only so many bytes a second from their disk; what that takes has no moment of its
own, but a known sum: the blocks are dropped from memory before, and what the kernel has of them after the run came from
the disk. So it is scored by the totals; some of it goes by unnoticed while the first step is computed. This needs root,
a block device and the controller blkio of control groups version 1; `--full` says so where it is left out. By `hook`:
our own code inside the process waits, where nothing outside knows the moment.

"While the trainer wants it" means that the injector first waits until the trainer asks, and the delay counts from then:
one that delays nothing would rightly be found nowhere. For the same reason, runs have one rank if a second one could
continue meanwhile.

Delays of layer `channel` are put into an exchange of dlobd's own, and have to be found in the very part that was
delayed: pack, wait for peers, wire or unpack. From outside, a channel is slowed on the [compose cluster](compose.md),
where a cap of `fabric` has a known cost. The five runs leave out `user`, which exists only for your own script.

## Result

{facts}

Seconds injected and recovered, over all sizes; the smallest share of a single delay that was recovered, and the largest
share that was blamed on another layer.

{delays}

Confusion matrix: which layer was blamed, in seconds; one row per delayed layer.

{matrix}

recovered = slope x injected + intercept. With a slope of 1 no share is lost; with an intercept of 0 nothing is lost at
the edges.

{lines}

{beyond}

{verdict}
"""

METRICS_PAGE = """\
# Numbers of run.json

{made}

The numbers in a run's record, with unit, meaning, formula and source. `[]` stands for each element of a list.
`null` means unknown: not measured, or the run ended before that; it never means 0.

Names ending in `_ns` are integer nanoseconds. `start_ns`, `end_ns` and `at_ns` are CLOCK_MONOTONIC times of the clock
domain that `window.clock` names; subtract `window.start_ns` to count from the start of the run. "own mark"
is a line written by dlobd's recorder; the other sources are described in [methodology.md](methodology.md#sources).

{tables}
## spark_metrics.metrics

Names and units are sparkMeasure's; the sources are members of `Task Metrics` in Spark's event log.

{spark}

## Data frames

`dlobd.load(BUNDLE)` gives the data as pandas data frames: `.attribution()` (columns {attribution}), `.spans()` (columns
{spans}), `.steps()` (columns {steps}), `.epochs()` (columns {epochs}) and `.resources()` (columns {resources}). Their
`start_ns`, `end_ns` and `at_ns` count from the start of the window. In `.resources()`, `role` is `host` for the whole
machine; CPU time and bytes of disks and networks have added up since the machine or the process was started.
`dlobd export` writes spans, steps and epochs as [CSV or Parquet](file-format.md#tables).
"""


def main(argv: list[str] | None = None) -> int:
    """Writes, checks or draws; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    parser.add_argument("--to", type=Path, default=DOCS, help="directory of the pages (default: docs)")
    commands = parser.add_subparsers(dest="command")
    draw = commands.add_parser("picture", help="draw breakdown.svg")
    draw.add_argument("bundle", type=Path, help="bundle of a run")
    chosen = parser.parse_args(argv)
    if chosen.command == "picture":
        (chosen.to / "breakdown.svg").write_text(picture(store.find(chosen.bundle, Path("runs")).read()))
        return 0
    made = pages()
    stale = {path: text for name, text in made.items() if _read(path := chosen.to / name) != text}
    left_over = [path for path in sorted(chosen.to.glob("commands/*.md")) if f"commands/{path.name}" not in made]
    if chosen.check:
        for path in stale:
            print(f"{path} is stale. Next: python docs/generate.py", file=sys.stderr)
        for path in left_over:
            print(f"{path} is of no command. Next: python docs/generate.py", file=sys.stderr)
        return 1 if stale or left_over else 0
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"wrote {path}")
    for path in left_over:
        path.unlink()
        print(f"removed {path}")
    return 0


def pages() -> dict[str, str]:
    """File name to content of the pages that are made from the code."""
    return {
        "layers.md": layers_page(),
        "metrics.md": metrics_page(),
        "audits.md": audits_page(),
        "selftest.md": selftest_page(),
        **_beside("command_pages").pages(DOCS),
    }


def _beside(name: str) -> Any:
    """A module of this directory, which is no package, wherever this one was loaded from."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def audits_page() -> str:
    """One row an audit, in the order of run.json."""
    rows = [
        (
            rule.audit,
            rule.says,
            rule.left_source,
            rule.right_source,
            rule.comparison.words,
            "whole" if rule.whole else "any",
        )
        for rule in AUDITS
    ]
    header = ("Audit", "What must hold", "Left source", "Right source", "Comparison", "Applies to")
    return AUDITS_PAGE.format(table=_table(header, rows), count=len(rows))


def selftest_page() -> str:
    """The tables of a full self-test, as `dlobd selftest` prints them."""
    whole = json.loads((DOCS / "selftest.json").read_text())
    points = [(f"`{p.name}`", p.layer, p.by, p.how, "often" if p.often else "once") for p in POINTS.values()]
    sizes = [f"{seconds:g} s" for seconds in SIZES_S]
    return SELFTEST_PAGE.format(
        sizes=f"{', '.join(sizes[:-1])} and {sizes[-1]}",
        points=_table(("Point", "Layer", "By", "What", "Per run"), points),
        facts="\n".join(f"- {fact}" for fact in whole["facts"]),
        delays=_table(report.DELAYS, report.by_point(whole)),
        matrix=_table(("delayed", *report.columns(whole)), report.matrix_rows(whole)),
        lines=_table(report.LINES, report.line_rows(whole)),
        beyond=_beyond_delays(whole),
        verdict="\n".join(f"- {line.capitalize()}." for line in report.verdicts(whole)),
        **whole["target"],
    )


def _beyond_delays(whole: dict[str, Any]) -> str:
    """Totals and coverage, as far as the result has them."""
    totals = "This result is of the five runs, which have no controls: it has no totals."
    if whole["totals"]:
        table = _table(report.TOTALS, report.total_rows(whole))
        totals = f"What was added to each layer, less what was injected into it.\n\n{table}"
    covered = _table(report.COVERED, report.covered_rows(whole))
    said = "How much of a run lies in spans with a delay, and the largest spans without one."
    return f"{totals}\n\n{said}\n\n{covered}"


def layers_page() -> str:
    """One row a layer, in the order of every report."""
    rows = [
        (
            f"**{layer.title}** `{layer.name}`",
            layer.group,
            layer.opens,
            layer.closes,
            layer.source,
            layer.cannot_see,
            f"`{layer.colour}`",
        )
        for layer in LAYERS.values()
    ]
    header = ("Layer", "Group", "Opens", "Closes", "Source", "Cannot see", "Colour")
    known = [
        (f"`{name}`", *(", ".join(f"`{one}`" for one in some.get(name, ())) for some in (MEASURED, BETWEEN_MARKS)))
        for name in LAYERS
    ]
    degrees = _table(("Layer", "Measured", "Between marks"), known)
    return LAYERS_PAGE.format(made=MADE, table=_table(header, rows), unattributed=UNATTRIBUTED, degrees=degrees)


def metrics_page() -> str:
    """One row per number, grouped by the member of run.json that holds it."""
    from dlobd.attribution import frames

    groups: dict[str, list[tuple[str, ...]]] = {"": []}
    for number in numbers(Run):
        group, dot, name = number.path.partition(".")
        group = group.removesuffix("[]") if dot else ""
        origin = "experiment file" if group == "configuration" else number.origin
        row = (f"`{name or number.path}`", number.unit, number.text, origin)
        if row not in groups.setdefault(group, []):  # two kinds of job share settings
            groups[group].append(row)
    described = {field.name: field.metadata["about"].text for field in dataclasses.fields(Run)}
    described[""] = "The numbers that are no part of a larger member."
    header = ("Number", "Unit", "Meaning", "Computed from")
    parts = [
        f"## {group or 'The run as a whole'}\n\n{described[group]}\n\n{_table(header, rows)}\n"
        for group, rows in groups.items()
    ]
    columns = {name.lower(): getattr(frames, name) for name in ("ATTRIBUTION", "SPANS", "STEPS", "EPOCHS", "RESOURCES")}
    named = {name: ", ".join(f"`{column}`" for column in table) for name, table in columns.items()}
    return METRICS_PAGE.format(made=MADE, tables="\n".join(parts), spark=_spark_metrics(), **named)


def _spark_metrics() -> str:
    rows = []
    for name, metric in (spark_metrics.COUNTS | spark_metrics.METRICS).items():
        of_run = "largest stage's sum of" if name in spark_metrics.LARGEST else "sum of"
        whole = ", of each stage in whole ms" if name in spark_metrics.NANOSECONDS else ""
        paths = " + ".join(f"`{path.replace('/', ' / ')}`" for path in metric.paths)
        origin = f"{of_run} {paths}{whole}" if paths else "`SparkListenerTaskEnd` of the event log"
        rows.append((f"`{name}`", metric.unit, metric.text, origin))
    return _table(("Metric", "Unit", "Meaning", "Computed from"), rows)


def picture(run: Run) -> str:
    """The first part of what `dlobd show` prints for a run, up to the largest parts, as SVG."""
    printed = io.StringIO()
    shown = Console(file=printed, force_terminal=True, color_system="truecolor", width=80, highlight=False)
    terminal.breakdown(run, shown)
    text = printed.getvalue().partition("\x1b[1mHidden inside")[0].rstrip()
    canvas = Console(file=io.StringIO(), record=True, width=80, highlight=False)
    canvas.print(Text.from_ansi(text))
    # without the web font of rich's format: a picture that asks a server for a font is not one file
    form = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, ", "")
    form = form.replace("<svg ", '<svg xml:space="preserve" ', 1)  # else some viewers drop what a line is indented by
    return canvas.export_svg(title="dlobd show", unique_id="dlobd", code_format=form)


def _table(header: tuple[str, ...], rows: list[Any]) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), "|" + "---|" * len(header), *map(line, rows)])


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())

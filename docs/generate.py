"""Generates pages of docs/ from the code: `layers.md`, `metrics.md`, `settings.md`, `trust.md`, `selftest.md`, a page
per command in `commands/`, and the terminal picture.

    python docs/generate.py                    write all pages
    python docs/generate.py --check            exit 1 if one of them is stale
    python docs/generate.py picture BUNDLE     write breakdown.svg from a real run

Names, units, descriptions and formulas come from `dlobd.layers`, `dlobd.trust`, `dlobd.record` and
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

from dlobd.bundle import store
from dlobd.errors import DlobdError
from dlobd.evidence.expected.kinds import KINDS
from dlobd.experiment.settings import SETTINGS
from dlobd.fields import numbers
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.measures import spark_metrics
from dlobd.record.run import Run
from dlobd.report.terminal import views
from dlobd.selftest import report
from dlobd.selftest.injection_points import POINTS
from dlobd.selftest.plans import SIZES_S
from dlobd.spans import BETWEEN_MARKS, MEASURED, SPANS, OwnQuality
from dlobd.trust.checks import RULES

DOCS = Path(__file__).parent

SETTINGS_HEADER = ("Key", "Default", "Values", "Unit", "Meaning")

MADE = """\
<!-- Made by docs/generate.py from dlobd/layers.py, dlobd/spans.py, dlobd/record/ and dlobd/schema.py. -->"""

LAYERS_PAGE = """\
# Layers

{made}

A layer is a place where time can go. The wall time of a run is split across these layers and nothing else; the parts
sum to the wall exactly. [methodology.md](methodology.md) describes how.

"Opens" and "closes" are the two events between which time can belong to the layer. Inside, the innermost open span
decides: HDFS calls made by the trainer count as HDFS, not TensorFlow.

{table}

`{unattributed}` is not a layer. It is time of the main lane in which no span was open, or whose layer a [missing
source](trust.md#missing-evidence) would have told. Time that belongs to a layer, but that no evidence explains, is its
`unexplained` part; the report hatches both and counts them together.

## Names and degrees of evidence

The kinds of spans of each layer, and how well the own time of each is known: two of the
[degrees](methodology.md#degrees-of-evidence) of evidence. A star is the variable part of a name. A few names occur in
several layers: the same call on behalf of each of them.

{degrees}

The colours are from the colour-blind-safe Okabe-Ito palette.
"""

TRUST_PAGE = """\
# Trust

<!-- Made by docs/generate.py; change that, or the docstrings in dlobd/trust. -->

A run is `ok` if its job ended well and no check fails. The first check that fails makes it `invalid`, and its message
is the `reason`. A failed job is `failed`, whatever its checks say.

## Checks

A check compares one quantity from two independent sources. It detects measurement bugs of dlobd, Spark or Hadoop.
`checks` in run.json has the code, the verdict, a message and both figures. `dlobd show`, the page and `dlobd verify`
list the checks that did not pass; `dlobd verify --full` lists all.

| Verdict | Meaning |
|---|---|
| `pass` | the two figures agree |
| `fail` | they contradict each other, and nothing in the evidence explains it |
| `unknown` | a source is missing or ended early, or the difference may be harmless; `message` has the reason |

A check that does not apply to a run is left out: plain processes have no HDFS, and dlobd does not know the right result
of your own script. A difference may be harmless if a DataNode died, Spark repeated a task, an HDFS client retried, or
the cluster is external. A check with a source that was killed early is `unknown`. So a healthy run stays `ok`, and its
report is at worst less well supported.

{checks}

The docstring of each check in `dlobd/trust` names the commit or the run in which it failed for a good
reason, or says that it has not failed yet.

## Missing evidence

"Not explained: 0.000 s" must mean that the time was observed. So dlobd tests each run for the sources that it must
have, and each file for its begin and its end. A missing source is a warning. It names the source, the sign of its
absence, and the facts that are unknown without it.

If the breakdown depends on the source, the check `evidence-complete` fails. The time of spans that may hide what the
source records is `unattributed`; the highest value of each layer in question includes it. Other missing sources only
leave figures, checks or bounds out.

{sources}

`evidence/collected.json` lists each collected file with its size, so that a file that was removed or truncated later is
noticed. Of a failed or interrupted run, only the collected files must be there: a killed process leaves less. On an
external cluster the logs of daemons do not decide, but the logs of containers and the spans do. By hand, the driver's
own files have to be brought along ([cluster](cluster.md#by-hand)).

## dlobd verify

`dlobd verify [RUN]` needs no cluster, and nothing but the bundle.

| Question | Finds |
|---|---|
| files match their hashes | a changed, added or missing file, unless the bundle was sealed again |
| hash matches the noted hash (`--against HASH`) | any change, even in a bundle that was sealed again |
| configuration, key and job agree | settings that the job did not get |
| report matches the evidence | a figure of run.json that recomputation does not reproduce |
| the checks of the run, computed again | sources that contradict each other |

Exit code 7 if an answer is no or a check fails. Hashes have no key: anyone can change a file and seal the bundle again.
`dlobd run` and `dlobd show` print the bundle's hash, which covers all its files. Note it where the bundle's holder
cannot change it, and compare it with `--against`.

## What the breakdown cannot distinguish

- In cluster mode, an ApplicationMaster that takes or launches its containers late: up to 94 % of such a delay counts as
  YARN's `hand out executor container`, as the [self-test](selftest.md) shows.
- A NodeManager that takes a start request late, from an ApplicationMaster that sends it late.
- HDFS's part of a task's input interval, from the JVM's own part, such as loading classes: the bound is wide.
"""

SELFTEST_PAGE = """\
# Self-test

<!-- Made by docs/generate.py from docs/selftest.json, the output of `dlobd selftest --json`. -->

Does the breakdown blame the right layer? `dlobd selftest` injects delays of known size into real runs on the embedded
cluster, in every layer, and looks for each delay in the breakdown.

```
dlobd selftest             five runs that cover every point, about five minutes; exit code 6 if a delay is not found
dlobd selftest --full      every point with {sizes}, and controls, about 80 minutes
```

The test is blind: the injector measures each delay by its own clock, in a log that attribution never reads.

## Scoring

**Each delay.** The interval of the delay is compared with the attributed wall. Time in the delayed layer is recovered;
time in other layers, unexplained time and unattributed time are not. A delay is *found* if at least {right:.0%} of it
are in its own layer, and at most {wrong:.0%} in any other.

**Only the time in which the delay held up the job counts.** On a busy machine, a client may still compute while the
daemon that it will call next is already stopped. This time is rightly the client's. The logs of Hadoop's RPC clients
show it, independently of the breakdown: a stopped daemon counts from the call that waits for it at the end of the stop.

**Hidden delays are repeated, at most twice, and reported.** A delay is *hidden*, if

- it held up the job for less than {held_up:.0%} of its length, or
- a JVM was stopped inside an RPC call, so that the called daemon looks slow, or
- the critical path moved on: spans of other layers, which it passed through meanwhile, began or ended within the delay.

Hidden delays, and delays that were not injected, run again by themselves. The output lists every hidden delay with its
blamed layers, and every repetition. A delay that is hidden in all three runs fails the self-test. Without these two
rules, 2 of 1,080 delays of the full self-test of 2026-11-25 failed: a client computed for 12 of 50 ms while the
NameNode was stopped (`hdfs/staging`), and 1 s of an ApplicationMaster was blamed on HDFS (`spark/am-request`).

**Everything else is *wrong*, and is not repeated.** If a span of another layer covers a delay that held up the job, the
self-test fails at once. Unit tests plant such errors: a breakdown that gives HDFS's spans to Spark, and a breakdown
that gives all time to one layer (`tests/unit/test_selftest.py`).

**Layer totals** (`--full`). Each run with delays has a control directly before or after it, with the same delays of
length 0. The layer's time in the run minus its time in the control must be the injected time, later effects included.
Six blocks give an interval of the median error with a coverage of 96.9 %. Target: at least {holding:.0%} of the
intervals contain zero. There is no correction for the number of rows. A first run, not scored, warms up the cluster.

**Coverage.** The share of a control's wall in spans that contained some delay. Target: at least {touched:.0%}. "Without
sleeps" excludes waits of known length, in which no work happens that could be delayed.

## Injection points

{points}

- `signal`: SIGSTOP, from a line of a log on. To other processes this looks like a hung daemon or a paused machine.
- `application`: another application, through YARN.
- `control group`: a limit of the DataNodes' disk reads. Only its sum is known, so that the totals score it. It needs
  root, a block device, and the controller blkio of control groups version 1; `--full` reports if it is left out.
- `hook`: dlobd's code waits inside the process, where nothing outside knows the moment.

"While the trainer wants it": the hook first waits until the trainer asks, and the delay counts from then. Runs have one
rank where a second one could continue meanwhile. Delays of the layer `channel` must be found in the delayed part: pack,
wait for peers, wire or unpack. The [mini-cluster](cluster.md#the-mini-cluster) slows a channel. The five runs leave out
`user`, which needs a user's own script.

## Result

{facts}

Seconds over all sizes; the smallest recovered share of a delay, and the largest share in another layer.

{delays}

Blamed layers in seconds; one row per delayed layer.

{matrix}

recovered = slope x held up + intercept. With slope 1 and intercept 0 nothing is lost.

{lines}

{beyond}

{verdict}
"""

SETTINGS_PAGE = """\
# Settings

<!-- Made by docs/generate.py from dlobd/schema.py. -->

The keys of an experiment: in a TOML file, with `--set key=value`, and as axes of a
[sweep](comparing.md#the-sweep-file). `dlobd list settings` prints them, and `dlobd list` explains the names.
[Models, data sets, settings](models-data-knobs.md) has more about some of them.

{table}
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
        try:
            run = store.find(chosen.bundle, Path("runs")).read()
        except DlobdError as error:
            print(error.line, file=sys.stderr)
            return error.exit_code
        (chosen.to / "breakdown.svg").write_text(picture(run))
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
        "settings.md": SETTINGS_PAGE.format(table=_table(SETTINGS_HEADER, [one.row for one in SETTINGS.values()])),
        "trust.md": trust_page(),
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


def trust_page() -> str:
    """Returns the page on checks, missing evidence and `dlobd verify`."""
    checks = [(f"`{rule.code}`", rule.description, *rule.sources) for rule in RULES]
    sources = [
        (kind.name, ", ".join(f"`{glob}`" for glob in kind.files), kind.unknown, "yes" if kind.decides else "no")
        for kind in KINDS
    ]
    return TRUST_PAGE.format(
        checks=_table(("Check", "What must hold", "Left figure", "Right figure"), checks),
        sources=_table(("Source", "Files", "Unknown without it", "Breakdown depends on it"), sources),
    )


def selftest_page() -> str:
    """Returns the tables of a full self-test, as `dlobd selftest` prints them."""
    whole = json.loads((DOCS / "selftest.json").read_text())
    points = [(f"`{p.name}`", p.by, p.how, "often" if p.often else "once") for p in POINTS.values()]
    sizes = [f"{seconds:g} s" for seconds in SIZES_S]
    return SELFTEST_PAGE.format(
        sizes=f"{', '.join(sizes[:-1])} and {sizes[-1]}",
        points=_table(("Point", "By", "What", "Per run"), points),
        facts="\n".join(f"- {fact}" for fact in whole["facts"]),
        delays=_table(report.DELAYS, report.by_point(whole)),
        matrix=_table(("delayed", *report.columns(whole)), report.matrix_rows(whole)),
        lines=_table(report.LINES, report.line_rows(whole)),
        beyond=_beyond_delays(whole),
        verdict="\n".join(f"- {line.capitalize()}." for line in report.verdicts(whole)),
        **whole["target"],
    )


def _beyond_delays(whole: dict[str, Any]) -> str:
    """Returns the tables of totals and coverage, if the result has them."""
    totals = "This result is from the five runs. They have no controls, and so no totals."
    if whole["totals"]:
        table = _table(report.TOTALS, report.total_rows(whole))
        totals = f"Layer totals: run with delays minus control.\n\n{table}"
    covered = _table(report.COVERED, report.covered_rows(whole))
    heading = "Share of the wall in spans with a delay, and the longest spans without one."
    return f"{totals}\n\n{heading}\n\n{covered}"


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
    known = [(f"`{layer}`", *(_kinds(layer, quality) for quality in (MEASURED, BETWEEN_MARKS))) for layer in LAYERS]
    degrees = _table(("Layer", "Measured", "Between marks"), known)
    return LAYERS_PAGE.format(made=MADE, table=_table(header, rows), unattributed=UNATTRIBUTED, degrees=degrees)


def _kinds(layer: str, quality: OwnQuality) -> str:
    rows = [kind for kind in SPANS.values() if kind.layer == layer and kind.quality == quality]
    return ", ".join(f"`{kind.text('*')}`" for kind in rows)


def metrics_page() -> str:
    """One row per number, grouped by the member of run.json that holds it."""
    from dlobd.measures import frames

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
    views.breakdown(run, shown)
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

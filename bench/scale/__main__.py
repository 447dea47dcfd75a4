"""Measure the commands for runs of 10^4 to 10^7 spans and for wide runs, and write docs/scale.md with a plot.

    python -m bench.scale [--most SPANS] [--out DIR] [--loaded]

The bundles are generated; see `bench.scale.grow`. Figures that --out has are kept: rerun the command to resume. --most
leaves out longer runs. The figures go into docs/scale.json.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from analysis.studies import pictures
from bench import command, publish
from bench.scale.measure import CPU_S, LONG, MEMORY_BYTES, WIDE, WORK, Measured, measured
from bench.tables import Table, number
from dlobd.run.progress import Progress

NAME = "scale"

COMMANDS = [work.title for work in WORK]

WIDE_NAMES = tuple(WIDE)


def main() -> int:
    """Run the command; return the exit code."""
    parser = command.parser(NAME, __doc__)
    parser.add_argument("--most", type=float, default=1e7, metavar="SPANS", help="leave out longer runs")
    return command.run(parser.parse_args(), NAME, _measure)


def _measure(asked: argparse.Namespace, progress: Progress) -> list[Path]:
    sizes = {name: size for name, size in LONG.items() if float(name.replace("10^", "1e")) <= asked.most}
    long = {name: measured(asked.out, size, progress) for name, size in sizes.items()}
    wide = {name: measured(asked.out, size, progress) for name, size in WIDE.items()}
    limits = f"limits of each process: {MEMORY_BYTES >> 30} GiB of address space, {CPU_S} s of CPU"
    facts = [*publish.machine(())[:1], limits]
    if asked.loaded:
        facts.append("**The machine had other work, which makes CPU times longer.**")
    return write(facts, long, wide, asked.docs)


def write(facts: Sequence[str], long: Mapping[str, Measured], wide: Mapping[str, Measured], docs: Path) -> list[Path]:
    """Write figures, plot and tables to docs/; return the paths."""
    picture, page = docs / f"{NAME}.svg", docs / f"{NAME}.md"
    stored = publish.store(docs, NAME, {"facts": facts, "long": long, "wide": wide})
    pictures.write(draw(long), picture)
    parts = [f"![CPU time and memory over spans]({picture.name})", *(table.markdown() for table in tables(long, wide))]
    publish.page(page, NAME, facts, parts)
    return [page, picture, stored]


def tables(long: Mapping[str, Measured], wide: Mapping[str, Measured]) -> list[Table]:
    """Build the tables of CPU time, memory, and wide runs."""
    spans = [f"{found.get('spans', 0):,} spans" for found in long.values()]
    runs = [f"{name}: {found['size']['executors']} executors" for name, found in long.items()]
    says = (
        f"Seconds of CPU, with the start of Python. {'; '.join(runs)}. Slope: of log CPU over log spans, first to last."
    )
    cpu = [
        [title, *(_cell(found, title, "cpu_s", 1) for found in long.values()), number(slope(long, title))]
        for title in COMMANDS
    ]
    memory = [[title, *(_cell(found, title, "peak_bytes", 1e-6) for found in long.values())] for title in COMMANDS]
    small, large = (wide[name] for name in WIDE_NAMES)
    names = [f"{name}: {wide[name].get('spans', 0):,} spans" for name in WIDE_NAMES]
    apart = [
        [title, *(_cell(found, title, "cpu_s", 1) for found in (small, large)), number(ratio(small, large, title))]
        for title in COMMANDS
    ]
    return [
        Table("CPU time", says, ["", *spans, "slope"], cpu),
        Table("Memory", "Peak of the resident memory, MB.", ["", *spans], memory),
        Table(
            "Wide runs",
            "Executors x tasks. Seconds of CPU; ratio: of the time per span, the large run to the small run.",
            ["", *names, "ratio"],
            apart,
        ),
    ]


def _cell(found: Measured, title: str, figure: str, scale: float) -> str:
    figures = found["commands"][title]
    return f"aborted: {figures['aborted']}" if "aborted" in figures else number(figures[figure] * scale)


def _points(long: Mapping[str, Measured], title: str, figure: str) -> list[tuple[int, float]]:
    every = ((found.get("spans", 0), found["commands"][title]) for found in long.values())
    return [(spans, figures[figure]) for spans, figures in every if spans and "aborted" not in figures]


def slope(long: Mapping[str, Measured], title: str) -> float | None:
    """Return the slope of the CPU time, from the shortest to the longest finished run, on logarithmic axes."""
    points = _points(long, title, "cpu_s")
    if len(points) < 2:
        return None
    (x0, y0), (x1, y1) = points[0], points[-1]
    return math.log(y1 / y0) / math.log(x1 / x0)


def ratio(small: Measured, large: Measured, title: str) -> float | None:
    """Return the CPU time per span of the large run, relative to the small run."""
    both = _points({"small": small, "large": large}, title, "cpu_s")
    return both[1][1] / both[1][0] / (both[0][1] / both[0][0]) if len(both) == 2 else None


def draw(long: Mapping[str, Measured]) -> Figure:
    """Draw CPU time and memory over the number of spans, on logarithmic axes."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, name, label, scale in zip(
        axes, ("cpu_s", "peak_bytes"), ("CPU time, s", "peak memory, MB"), (1.0, 1e-6), strict=True
    ):
        for place, title in enumerate(COMMANDS):
            style, marker, colour = pictures.LINES[place % len(pictures.LINES)]
            points = _points(long, title, name)
            axis.loglog(
                [x for x, _ in points],
                [y * scale for _, y in points],
                linestyle=style,
                marker=marker,
                color=colour,
                markerfacecolor=colour if place < len(pictures.LINES) else "white",
                label=title,
            )
        axis.set(xlabel="spans", ylabel=label)
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


if __name__ == "__main__":
    sys.exit(main())

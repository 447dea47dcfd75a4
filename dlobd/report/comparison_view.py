"""A comparison in the terminal: what was not the same first, then what was set, then each pair's verdicts.

It fits 80 columns. Seconds come first, percent second; brackets hold intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from dlobd.attribution.comparison import ALPHA, Bounds, Compared
from dlobd.attribution.power import MOST_RUNS, POWER
from dlobd.report import text
from dlobd.report.comparison import WALL, Comparison, Pair
from dlobd.report.repeats import plain_table
from dlobd.report.summary import title
from dlobd.schema import DEFAULTS

MACHINE = ("host", "processor", "cores", "distribution", "kernel")
"""Of a platform, what a line of the terminal has."""


def show(found: Comparison, console: Console) -> None:
    """Prints all of it."""
    for one in found.environment:
        text.line(console, f"NOT THE SAME ENVIRONMENT, {one.line}", "bold yellow")
    _settings(found, console)
    for pair in found.pairs:
        _pair(found, pair, console)
    _explain(found, console)


def sentence(name: str, one: Compared) -> str:
    """A quantity's verdict with its effect, in a line."""
    seconds = f"{_seconds(one.difference_ns, sign=True)} s {_between(one.difference, 1e9, 3)}".strip()
    if one.difference_share is None:
        return f"{name}: {one.verdict}, {seconds}"
    percent = f"{one.difference_share:+.1%} {_between(one.share, 0.01, 1)}".strip()
    return f"{name}: {one.verdict}, {seconds}, {percent}"


def _settings(found: Comparison, console: Console) -> None:
    """Prints the settings that all have in common, without defaults."""
    common = {name: value for name, value in found.common.items() if name not in DEFAULTS or value != DEFAULTS[name]}
    text.line(console, f"In common: {_words(common)}")
    machine = {name: found.machine[name] for name in MACHINE if found.machine.get(name)}
    text.line(console, f"Machine: {_words(machine)}")
    text.line(console, f"Versions: {_words({name: value for name, value in found.versions.items() if value})}")


def _pair(found: Comparison, pair: Pair, console: Console) -> None:
    text.heading(console, f"{pair.second} against {pair.first}: {counts(pair)}")
    for name, (one, other) in pair.differing.items():
        text.line(console, f"{name}: {one} -> {other}")
    for line in pair.left_out:
        text.line(console, f"left out: {line}")
    if not pair.blocks:
        text.line(console, "Not run in the same repeats: what drifted between them hides a difference.")
    text.line(console, sentence(WALL, pair.wall), "bold")
    rows = plain_table("seconds", "first", "second", "difference", "interval", "verdict")
    for name, one in pair.quantities.items():
        difference = _seconds(one.difference_ns, sign=True), _between(one.difference, 1e9, 3)
        rows.add_row(title(name), _seconds(one.first_ns), _seconds(one.second_ns), *difference, one.verdict)
    console.print(rows)
    rows = plain_table("percent", "difference", "interval", "shows from", "seconds", f"runs for {found.margin:.0%}")
    for name, one in pair.quantities.items():
        rows.add_row(title(name), *_percent(one), *_shown(one), _needed(one))
    console.print(rows)
    if pair.unknown:
        text.line(console, not_compared(pair))


def counts(pair: Pair) -> str:
    """How many runs are compared with how many."""
    first, second = map(len, pair.runs)
    if pair.blocks:
        return f"{first} repeats, each with a run of both"
    return f"{second} {'run' if second == 1 else 'runs'} against {first}"


def not_compared(pair: Pair) -> str:
    """The layers that some of the runs lack."""
    return f"Not compared, as not measured in all of the runs: {', '.join(map(title, pair.unknown))}"


def _explain(found: Comparison, console: Console) -> None:
    blocks = all(pair.blocks for pair in found.pairs)
    runs = "repeats" if blocks else "runs a side"
    levels = sorted({one.confidence for pair in found.pairs for one in pair.quantities.values() if one.confidence})
    text.heading(console, "How to read it")
    exact = all(one.exact for pair in found.pairs for one in pair.quantities.values())
    test = "Exact permutation test" if exact else "Permutation test (20,000 relabellings, drawn; seed 0)"
    text.line(
        console,
        f"{test} of means. Of all walls together, and of all layers together, a difference is seen where there is none "
        f"in at most {ALPHA:.0%} of comparisons (Holm). "
        f"Significance is possible from {found.fewest_wall} {runs} on for the wall, {found.fewest_layers} for layers.",
    )
    text.line(
        console,
        "Intervals in brackets"
        + (f", of {' or '.join(f'{level:.1%}' for level in levels)} each" if levels else ": none, too few runs")
        + f". Equivalent: the interval lies within {found.margin:.0%} of the first side, for a layer also within "
        f"{found.least_ns / 1e9:.3f} s. Shows from: the smallest difference that runs which scatter like these show in "
        f"{POWER:.0%} of comparisons. Runs: so many a side show {found.margin:.0%}.",
    )


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _seconds(ns: float, sign: bool = False) -> str:
    return f"{ns / 1e9:{'+' if sign else ''}.3f}"


def _between(bounds: Bounds | None, unit: float, digits: int) -> str:
    return "" if bounds is None else f"({bounds.low / unit:+.{digits}f} to {bounds.high / unit:+.{digits}f})"


def _percent(one: Compared) -> tuple[str, str]:
    share = one.difference_share
    return "-" if share is None else f"{share * 100:+.1f}", _between(one.share, 0.01, 1)


def _shown(one: Compared) -> tuple[str, str]:
    if one.smallest_ns is None:
        return "-", "-"
    return f"{one.smallest_ns / one.first_ns * 100:.1f}" if one.first_ns else "-", _seconds(one.smallest_ns)


def _needed(one: Compared) -> str:
    if one.verdict != "inconclusive":
        return ""
    return str(one.runs_needed) if one.runs_needed else (f"> {MOST_RUNS}" if one.smallest_ns is not None else "-")

"""Fills the parts of the pages in docs/ that follow from the code.

    python docs/generate.py                    fill all pages
    python docs/generate.py --check            exit 1 if a page is stale

A part lies between `<!-- begin NAME -->` and `<!-- end -->`. The rest of a page is written by hand.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import typer

from dlobd.cli.main import app
from dlobd.evidence.expected.kinds import KINDS
from dlobd.experiment.settings import SETTINGS
from dlobd.fields import Description
from dlobd.layers import LAYERS
from dlobd.measures import frames, spark_metrics
from dlobd.record.run import Run
from dlobd.report.first_screen import WORDS
from dlobd.selftest import report
from dlobd.selftest.injection_points import POINTS
from dlobd.spans import BETWEEN_MARKS, MEASURED, SPANS, OwnQuality
from dlobd.trust.checks import RULES

DOCS = Path(__file__).parent
UNITS = ("ns", "bytes", "share", "samples", "steps", "spans", "lines", "cores", "threads", "calls", "tasks")
"""Units that are also suffixes of field names: the unit of a field `wall_ns` is `ns`."""

PART = re.compile(r"(<!-- begin (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main(argv: list[str] | None = None) -> int:
    """Fill or check; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    parser.add_argument("--to", type=Path, default=DOCS, help="directory of the pages (default: docs)")
    chosen = parser.parse_args(argv)
    stale = filled(chosen.to)
    for path, text in stale.items():
        if chosen.check:
            print(f"{path} is stale. Next: python docs/generate.py", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote {path}")
    return 1 if chosen.check and stale else 0


def filled(docs: Path) -> dict[Path, str]:
    """Return the new text of each stale page.

    Raises:
        ValueError: a page has an unknown part, or no page has a part that exists.
    """
    made, seen, stale = parts(), set(), {}
    for path in sorted(docs.glob("*.md")):
        text = path.read_text()
        names = {name for _, name, _ in PART.findall(text)}
        if unknown := names - made.keys():
            raise ValueError(f"{path}: nothing makes the part {min(unknown)}. Next: rename or remove it")
        new = PART.sub(lambda found: f"{found[1]}{made[found[2]]}\n{found[3]}", text)
        if new != text:
            stale[path] = new
        seen |= names
    if missing := made.keys() - seen:
        raise ValueError(f"{docs}: no page has the part {min(missing)}. Next: write <!-- begin {min(missing)} -->")
    return stale


def parts() -> dict[str, str]:
    """Return the text of each part by name."""
    tables: tuple[Callable[[], str], ...] = (layers, words, degrees, settings, metrics, spark, data_frames)
    tables += (checks, sources)
    return {table.__name__: table() for table in tables} | selftest() | dict(commands())


def layers() -> str:
    """Return a row per layer, in the order of every report."""
    header = ("Layer", "Group", "Opens", "Closes", "Source", "Cannot see", "Colour")
    rows = (
        (f"**{row.title}** `{name}`", row.group, row.opens, row.closes, row.source, row.cannot_see, f"`{row.colour}`")
        for name, row in LAYERS.items()
    )
    return _table(header, rows)


def words() -> str:
    """Return a row per word of the first screen."""
    return _table(("Word", "Meaning"), WORDS.items())


def degrees() -> str:
    """Return the span names of each layer, by the quality of their own time."""

    def names(layer: str, quality: OwnQuality) -> str:
        return _code(kind.text("*") for kind in SPANS.values() if kind.layer == layer and kind.quality == quality)

    rows = ((f"`{layer}`", names(layer, MEASURED), names(layer, BETWEEN_MARKS)) for layer in LAYERS)
    return _table(("Layer", "Measured", "Between marks"), rows)


def settings() -> str:
    """Return a row per key of an experiment."""
    rows = []
    for one in SETTINGS.values():
        default = "required" if one.required else f"`{json.dumps(one.default)}`"
        rows.append((f"`{one.name}`", default, one.values, one.about.unit or "-", one.about.text))
    return _table(("Key", "Default", "Values", "Unit", "Meaning"), rows)


def metrics() -> str:
    """Return a row per number of run.json, under a heading per member; equal numbers of a member share a row."""
    groups: dict[str, dict[tuple[str, str, str], list[str]]] = {"": {}}
    for number in numbers(Run):
        group, dot, name = number.path.partition(".")
        group = group.removesuffix("[]") if dot else ""
        origin = "experiment file" if group == "configuration" else number.origin
        same = groups.setdefault(group, {}).setdefault((number.unit, number.text, origin), [])
        if (name or number.path) not in same:  # two kinds of job share settings
            same.append(name or number.path)
    described = {field.name: field.metadata["about"].text for field in dataclasses.fields(Run)}
    described[""] = "The numbers that are no part of a larger member."
    header = ("Number", "Unit", "Meaning", "Computed from")
    return "\n\n".join(
        f"## {group or 'The run as a whole'}\n\n{described[group]}\n\n"
        + _table(header, ((_code(names), *row) for row, names in rows.items()))
        for group, rows in groups.items()
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """Numeric field of a record: its path, such as `layers[].ns`, and its documentation."""

    path: str
    unit: str
    text: str
    origin: str


def numbers(kind: type, path: str = "") -> Iterator[Number]:
    """Yield the numeric fields of a dataclass and of nested dataclasses, in the order of declaration. Raises ValueError
    if a numeric field has no description."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        about: Description | None = field.metadata.get("about")
        place = f"{path}.{field.name}" if path else field.name
        for leaf, suffix in _leaves(hints[field.name]):
            if isinstance(leaf, type) and dataclasses.is_dataclass(leaf):
                yield from numbers(leaf, place + suffix)
            elif leaf in (int, float):
                if about is None or not about.text:
                    raise ValueError(f"{kind.__name__}.{field.name} is not described")
                named = next((unit for unit in UNITS if field.name == unit or field.name.endswith(f"_{unit}")), "-")
                yield Number(place + suffix, about.unit or named, about.text, about.origin)
                break


def _leaves(kind: object) -> Iterator[tuple[object, str]]:
    """Yield the innermost types of a type with the suffix of their path, such as `[]` for members of a tuple."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for argument in arguments:
            yield from _leaves(argument)
    elif origin is tuple:
        for argument in arguments:
            if argument is not Ellipsis:
                yield from ((leaf, f"[]{suffix}") for leaf, suffix in _leaves(argument))
    elif origin is Mapping:
        yield from ((leaf, f".*{suffix}") for leaf, suffix in _leaves(arguments[1]))
    else:
        yield kind, ""


def spark() -> str:
    """Return a row per metric of Spark's tasks."""
    rows = []
    for name, metric in (spark_metrics.COUNTS | spark_metrics.METRICS).items():
        of_run = "largest stage's sum of" if name in spark_metrics.LARGEST else "sum of"
        whole = ", of each stage in whole ms" if name in spark_metrics.NANOSECONDS else ""
        paths = " + ".join(f"`{path.replace('/', ' / ')}`" for path in metric.paths)
        origin = f"{of_run} {paths}{whole}" if paths else "`SparkListenerTaskEnd` of the event log"
        rows.append((f"`{name}`", metric.unit, metric.text, origin))
    return _table(("Metric", "Unit", "Meaning", "Computed from"), rows)


def data_frames() -> str:
    """Return the columns of each data frame of a bundle."""
    names = ("attribution", "spans", "steps", "epochs", "resources")
    return _table(("Method", "Columns"), ((f"`.{name}()`", _code(getattr(frames, name.upper()))) for name in names))


def checks() -> str:
    """Return a row per check."""
    rows = ((f"`{rule.code}`", rule.description, *rule.sources) for rule in RULES)
    return _table(("Check", "What must hold", "Left figure", "Right figure"), rows)


def sources() -> str:
    """Return a row per source of evidence."""
    rows = ((kind.name, _code(kind.files), kind.unknown, "yes" if kind.decides else "no") for kind in KINDS)
    return _table(("Source", "Files", "Unknown without it", "Breakdown depends on it"), rows)


def selftest() -> dict[str, str]:
    """Return the parts of the self-test's page, from the published result of `dlobd selftest --json`."""
    whole = json.loads((DOCS / "selftest.json").read_text())
    delayed = {row[0]: row[2:] for row in report.by_point(whole)}
    points = [
        (f"`{p.name}`", p.by, p.how, "often" if p.often else "once", *delayed.get(p.name, ("-",) * 6))
        for p in POINTS.values()
    ]
    by_way: dict[str, dict[str, str]] = {}
    for way, layer, _, _, error, interval, holds in report.total_rows(whole):
        by_way.setdefault(way, {})[layer] = f"{error} ({interval}){'' if holds == 'yes' else f' **{holds}**'}"
    named = list(dict.fromkeys(layer for cells in by_way.values() for layer in cells))
    totals = _table(
        ("way", *named), ([way, *(cells.get(layer, "") for layer in named)] for way, cells in by_way.items())
    )
    return {
        "points": _table(("Point", "By", "What", "Per run", *report.DELAYS[2:]), points),
        "facts": "\n".join(f"- {fact}" for fact in whole["facts"]),
        "matrix": _table(("delayed", *report.columns(whole)), report.matrix_rows(whole)),
        "lines": _table(report.LINES, report.line_rows(whole)),
        "totals": totals,
        "coverage": _table(report.COVERED, report.covered_rows(whole)),
        "verdict": "\n".join(f"- {line.capitalize()}." for line in report.verdicts(whole)),
    }


def commands() -> Iterator[tuple[str, str]]:
    """Yield "dlobd COMMAND" with its help, usage, arguments and options."""
    for name, command in leaves(typer.main.get_command(app)):
        shown = [parameter for parameter in command.params if not parameter.hidden]
        arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
        options = [parameter for parameter in shown if parameter.param_type_name == "option"]
        usage = [f"dlobd {name}", *(["[OPTIONS]"] if options else []), *map(_usage, arguments)]
        paragraphs = [" ".join(paragraph.split()) for paragraph in command.help.strip().split("\n\n")]
        help_text = "\n\n".join(textwrap.fill(_inline(text), 120, break_on_hyphens=False) for text in paragraphs)
        rows = [(_spelled(parameter), _default(parameter), _meaning(parameter)) for parameter in arguments + options]
        table = f"\n\n{_table(('Option', 'Default', 'Meaning'), rows)}" if rows else ""
        yield f"dlobd {name}", f"{help_text}\n\n    {' '.join(usage)}{table}"


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the words after dlobd, and the command, for each visible command that is no group."""
    for name, inner in getattr(command, "commands", {}).items():
        if hasattr(inner, "commands"):
            yield from leaves(inner, (*words, name))
        elif not inner.hidden:
            yield " ".join((*words, name)), inner


def _usage(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required or name.startswith(("[", "-")) else f"[{name}]"


def _spelled(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    kind = parameter.type_descriptor.annotation
    value = parameter.metavar or {int: "N", float: "X", Path: "PATH", Path | None: "PATH"}.get(kind, "TEXT")
    spellings = (*parameter.opts, *parameter.secondary_opts)
    return " or ".join(f"`{spelling}{'' if parameter.is_flag else f' {value}'}`" for spelling in spellings)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if getattr(parameter, "is_flag", False):
        default = parameter.opts[0] if parameter.default else (*parameter.secondary_opts, "")[0]
        return f"`{default}`" if default else "off"
    if parameter.default not in (None, "", ()):
        return f"`{parameter.default}`"
    return f"`${parameter.envvar}`, else none" if parameter.envvar else "-"


def _meaning(parameter: Any) -> str:
    low, high = getattr(parameter, "min", None), getattr(parameter, "max", None)
    limits = f" From {low} to {high}." if high is not None else f" At least {low}." if low is not None else ""
    return _inline(f"{parameter.help or ''}{limits}")


def _inline(text: str) -> str:
    """Turn plain text into Markdown: options become code."""
    pieces = re.split(r"(`[^`]*`)", text)
    for place in range(0, len(pieces), 2):
        plain = pieces[place].replace("<", "\\<").replace("*", "\\*")
        plain = re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", plain)
        pieces[place] = plain
    return "".join(pieces)


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), "|" + "---|" * len(header), *map(line, rows)])


if __name__ == "__main__":
    raise SystemExit(main())

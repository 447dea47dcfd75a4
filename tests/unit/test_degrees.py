"""Degrees of evidence: the table knows every name, and each degree is what its definition says."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from span_names import X, made
from strategies import span

from dlobd.attribution import degrees
from dlobd.attribution.attribute import attribute
from dlobd.attribution.lanes.assemble import assemble
from dlobd.layers import LAYERS
from dlobd.schema import LayerTime, Span, Trace

TOP = Path(__file__).parents[2]
CAPTURES = sorted(path.parent for path in (TOP / "tests" / "data").glob("*/run.json"))
MADE = {(layer, name): where for where, layer, name in made()}
ROWS = [
    (layer, name)
    for table in (degrees.MEASURED, degrees.BETWEEN_MARKS)
    for layer, some in table.items()
    for name in some
]


def known(*spans: Span) -> LayerTime:
    """The one layer of a trace whose window is [0, 100)."""
    (row,) = attribute(Trace(0, 100, spans)).layers
    return row


def test_every_span_that_can_be_made_has_a_row() -> None:
    """Of recorders, importers and lanes: a name that the table does not know would pass as between marks unnoticed."""
    assert len(MADE) > 120
    for (layer, name), where in MADE.items():
        layers = LAYERS if layer == X else (layer,)
        assert any(degrees.own(one, name) for one in layers), f"{where}: {layer}: {name}"


@pytest.mark.parametrize("bundle", CAPTURES, ids=lambda path: path.name)
def test_every_span_of_a_captured_run_has_a_row(bundle: Path) -> None:
    """Bundles of before have names that nothing makes any more."""
    assert {(s.layer, s.name) for s in assemble(bundle).spans if degrees.own(s.layer, s.name) is None} == set()


def test_every_row_is_of_a_span_that_can_be_made() -> None:
    """A row that nothing carries is a misspelling, or is left over."""
    for layer, name in ROWS:
        assert any(
            made_layer in (layer, X) and (fnmatchcase(made_name, name) or made_name == name.replace("*", X))
            for made_layer, made_name in MADE
        ), f"{layer}: {name}"
    assert len(ROWS) == len(set(ROWS))


def test_a_name_has_one_degree_in_all_its_layers() -> None:
    """The few names that several layers have are the same call on behalf of each."""
    shared = {name for layer, name in ROWS if sum(other == name for _, other in ROWS) > 1}
    assert shared == {"user code", "agree", "read *", "write *"}
    for name in shared:
        assert len({degrees.own(layer, name) for layer, other in ROWS if other == name}) == 1


def test_every_cause_says_where_its_length_is_from() -> None:
    """The table of methodology.md and that of the code are the same."""
    section = (TOP / "docs" / "methodology.md").read_text().partition("## Named causes")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| ([^|]+) \|.*\| (read|default) \|$", section, re.MULTILINE))
    assert documented == {cause: "read" if read else "default" for cause, read in degrees.WAITS.items()}


def test_a_call_is_measured_and_what_lies_between_marks_is_not() -> None:
    """By the name of the innermost span: what a whole has no other name for is between its marks."""
    whole = replace(span("w", "tensorflow", 0, 100), name="trainer process")
    call = replace(span("c", "tensorflow", 20, 50, parent="w"), name="step")
    row = known(whole, call)
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (30, 70, 0, 0)


def test_a_call_whose_end_was_not_seen_is_between_marks() -> None:
    """Its process was killed: it is closed at the last evidence."""
    row = known(replace(span("c", "feed", 0, 100, truncated=True), name="put"))
    assert (row.measured_ns, row.between_marks_ns) == (0, 100)


def test_a_name_without_a_row_is_between_marks() -> None:
    """Nothing says that it is better known; nor does the row of another layer."""
    for layer, name in (("spark", "of another version"), ("hdfs", "step")):
        row = known(replace(span("c", layer, 0, 100), name=name))
        assert (row.measured_ns, row.between_marks_ns) == (0, 100)


@pytest.mark.parametrize(
    ("cause", "length"), [("done-marker poll (0.1 s)", "read"), ("Spark's barrier poll", "default"), ("poll", None)]
)
def test_a_named_wait_is_told_apart_with_where_its_length_is_from(cause: str, length: str | None) -> None:
    """Beyond its period the wait is unexplained, a sleep is its own call."""
    wait = span("w", "launcher", 0, 100, waits_for=("nobody",), cause=cause, cause_period_ns=30)
    row = known(wait)
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (0, 0, 30, 70)
    assert row.causes == ((cause, 30, length),)
    row = known(replace(wait, name="sleep", waits_for=()))
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (70, 0, 30, 0)

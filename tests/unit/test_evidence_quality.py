"""Quality of the evidence for pieces of the wall."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlobd.attribution.attribute import attribute
from dlobd.schema import LayerTime, Span, Trace
from dlobd.spans import SLEEP
from tests.strategies import span


def known(*spans: Span) -> LayerTime:
    (row,) = attribute(Trace(0, 100, spans)).layers
    return row


def test_calls_are_measured_unless_their_end_is_missing() -> None:
    whole = span("w", "tensorflow", 0, 100, name="trainer process")
    call = span("c", "tensorflow", 20, 50, parent="w", name="step")
    row = known(whole, call)
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (30, 70, 0, 0)
    row = known(span("c", "feed", 0, 100, truncated=True, name="put"))
    assert (row.measured_ns, row.between_marks_ns) == (0, 100)


@pytest.mark.parametrize(
    ("cause", "length"), [("done-marker poll (0.1 s)", "read"), ("Spark's barrier poll", "default"), ("poll", None)]
)
def test_a_named_wait_is_told_apart_with_where_its_length_is_from(cause: str, length: str | None) -> None:
    wait = span("w", "launcher", 0, 100, waits_for=("nobody",), cause=cause, cause_period_ns=30)
    row = known(wait)
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (0, 0, 30, 70)
    assert row.causes == ((cause, 30, length),)
    row = known(replace(wait, kind=SLEEP, waits_for=()))
    assert (row.measured_ns, row.between_marks_ns, row.named_wait_ns, row.unexplained_ns) == (70, 0, 30, 0)

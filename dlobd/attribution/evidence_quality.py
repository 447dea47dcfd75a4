"""Classifies the evidence for the time of a span or of a segment. Pure.

    measured        begin and end of one call or phase were observed
    between marks   nothing was observed between two marks of different things; also the own time of a whole process,
                    task or thread, which no span inside it covers
    named wait      a configured poll, heartbeat or sleep; `Cause.period_is_read` is True if its length was measured
    unexplained, unattributed
                    as in the attribution

The row of a span's kind in `dlobd.spans` has the quality of its own time.
"""

from __future__ import annotations

from typing import Literal

from dlobd.schema import Segment, Span
from dlobd.spans import BETWEEN_MARKS, OwnQuality

Quality = Literal["measured", "between marks", "named wait", "unexplained", "unattributed"]


def quality(segment: Segment) -> Quality:
    """Return the quality of the evidence for a segment."""
    if segment.span is None:
        return "unattributed"
    if segment.kind == "cause":
        return "named wait"
    if segment.kind == "unexplained":
        return "unexplained"
    return own_quality(segment.span)


def own_quality(span: Span) -> OwnQuality:
    """Return the quality of a span's own time. A span whose end was not observed is between marks."""
    return BETWEEN_MARKS if span.truncated else span.kind.quality

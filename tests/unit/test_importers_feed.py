"""Puts and gets of one feed are matched by the bytes that they moved."""

from __future__ import annotations

from typing import Any

from dlobd.attribution.importers.recorder import RecordedSpan
from dlobd.attribution.lanes.feed import given_ns, room_ns


def moved(start_ns: int, end_ns: int, size: int | None, truncated: bool = False) -> RecordedSpan:
    """A put or a get."""
    attrs: dict[str, Any] = {} if size is None else {"bytes": size}
    return RecordedSpan(0, 0, "feed", "put", start_ns, end_ns, truncated, {}, attrs, "")


PUTS = [moved(0, 10, 100), moved(20, 30, 100), moved(40, 50, 50)]
GETS = [moved(5, 12, 100), moved(25, 33, 100), moved(60, 61, 50)]


def test_a_get_is_given_what_was_put() -> None:
    """The third block lay there before it was asked for."""
    assert given_ns(GETS, PUTS) == {5: 10, 25: 30, 60: 50}


def test_a_get_of_several_blocks_waits_for_the_last() -> None:
    """TensorFlowOnSpark may hand over several at once."""
    assert given_ns([moved(0, 99, 250)], PUTS) == {0: 50}


def test_what_is_not_known_is_not_matched() -> None:
    """A block that nobody put, a get that did not end or says no bytes, and the end of the feed."""
    assert given_ns([moved(0, 1, 100), moved(2, 3, 200)], PUTS[:1]) == {0: 10}
    assert given_ns([moved(0, 1, None), moved(2, 3, 100)], PUTS) == {}
    assert given_ns([moved(0, 1, 100), moved(2, 9, 100, truncated=True)], PUTS) == {0: 10}
    assert given_ns([moved(0, 1, 0)], PUTS) == {}


def test_a_put_waits_for_room_only_while_the_pipe_is_full() -> None:
    """A pipe of 150 bytes: the first block fits at once, the second once the first was taken, the third with it."""
    assert room_ns(PUTS, GETS, 150) == {0: 0, 20: 12, 40: 12}
    assert room_ns(PUTS, GETS, 1000) == {0: 0, 20: 0, 40: 0}
    assert room_ns(PUTS, [], 150) == {0: 0}

"""The registry of span kinds."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from dlobd import spans as kinds
from dlobd.errors import BundleError
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.schema import Process
from dlobd.timeline.builder import LaneBuilder


def test_a_span_of_an_unregistered_kind_is_refused() -> None:
    process = Process("host", "driver", 0, 1)
    recorded = RecordedProcess(process, "domain", 0, False, Path("spans-1-2.jsonl"))
    recorded.spans = [RecordedSpan(1, 0, "spark", "of another version", 0, 9, False, {}, {}, "")]
    with pytest.raises(BundleError, match="span of unknown kind: layer 'spark', name 'of another version'"):
        LaneBuilder("driver", process).add_recorded(recorded)


@pytest.mark.parametrize(
    ("layer", "name", "expected"),
    [
        ("feed", "get", (kinds.GET, "")),
        ("hdfs", "read test set", (kinds.READ_FILE, "test set")),
        ("tensorflow", "read test set", (kinds.READ_LOCAL_FILE, "test set")),
        ("hdfs", "write staging", (kinds.WRITE_STAGING, "")),
        ("hdfs", "OPEN NameNode", (kinds.NAMENODE_CALL, "OPEN")),
        ("yarn", "submit RPC", (kinds.SUBMIT_RPC, "")),
        ("yarn", "allocate and launch AM container", (kinds.ALLOCATE_AND_LAUNCH_CONTAINER, "AM")),
        ("spark", "get", None),
    ],
)
def test_a_recorded_span_finds_its_kind(layer: str, name: str, expected: tuple[kinds.SpanKind, str] | None) -> None:
    found = kinds.kind_of(layer, name)
    assert found == expected
    if found and expected:
        assert found[0] is expected[0]
        assert found[0].text(found[1]) == name


def test_causes_and_copies_are_registered_rows() -> None:
    assert kinds.cause_of("HDFS client's close retry, until its next try (0.4 s)") is kinds.CLOSE_RETRY_READ
    assert kinds.cause_of(kinds.DONE_MARKER_POLL.text("0.1 s")) is kinds.DONE_MARKER_POLL
    assert kinds.cause_of("poll") is None
    for row in (*kinds.SPANS.values(), *kinds.INSTANTS.values(), *kinds.CAUSES.values()):
        assert copy.deepcopy(row) is row
        assert pickle.loads(pickle.dumps(row)) is row

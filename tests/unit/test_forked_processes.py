"""Processes that user code forks, and nodes that are killed as part of a job that ends well."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedSpan
from dlobd.experiment.own_job import from_dict
from dlobd.recompute import computed as record
from dlobd.timeline.assemble import _Waits, assemble
from dlobd.timeline.ranks import ranks
from dlobd.tracing import CHILD, Cost
from tests.captured import Captured, copy_of, note_sizes

DRIVER, WORKER, CONTAINER = 25380, 25930, "container_1795717270784_0023_01_000002"
MAIN = {"k": "b", "l": kinds.USER_MAIN.layer, "n": kinds.USER_MAIN, "i": 1, "p": 0, "a": {"role": "chief", "index": 0}}
IMPORT = {"k": "b", "l": kinds.IMPORT_TENSORFLOW.layer, "n": kinds.IMPORT_TENSORFLOW, "i": 7, "p": 6}
PANDAS = {"k": "i", "n": kinds.PACKAGE_IMPORTED, "a": {"package": "pandas", "by": "", "ns": 9**9, "own_ns": 9**9}}
COST = {"k": "cost", **dataclasses.asdict(Cost()), "lines": 0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_of("own-run", tmp_path)


def add(path: Path, directory: str, pid: int, role: str, parent: int, *lines: dict[str, Any], more: str = "") -> None:
    """Add the span file of a forked process; its lines come 1 ms apart, after the start of that parent's lane."""
    like = next((path / "spans" / directory).glob(f"spans-{DRIVER if directory == 'driver' else WORKER}-*.jsonl"))
    process = json.loads(like.read_text().splitlines()[0])
    at_ns = process["opened_ns"] + 10**8 + pid
    process |= {"role": role, "pid": pid, "parent": parent, "opened_ns": at_ns, "start_ns": at_ns, "forked": True}
    timed = [line if line["k"] == "cost" else {"t": at_ns + n * 10**6, **line} for n, line in enumerate(lines, 1)]
    timed = [line | {"lines": n} if line["k"] == "cost" else line for n, line in enumerate(timed, 1)]
    text = "".join(json.dumps(line) + "\n" for line in (process, *timed))
    (path / "spans" / directory / f"spans-{pid}-{at_ns}.jsonl").write_text(text + more)
    note_sizes(path)


def computed(path: Path) -> dict[str, Any]:
    return record.computed(Bundle(path), from_dict(Captured.stored("own-run")["configuration"])).to_json()


def missing(found: dict[str, Any]) -> list[str]:
    return [line for line in found["warnings"] if line.startswith("missing: ")]


@pytest.mark.parametrize(
    ("directory", "parent"),
    [
        pytest.param("driver", DRIVER, id="pool of the driver"),
        pytest.param("driver", 4711, id="pool of a process that recorded nothing"),
        pytest.param("driver", 1, id="daemon whose parent has ended"),
        pytest.param(CONTAINER, WORKER, id="pool of a function in a Spark task"),
        pytest.param(CONTAINER, 4711, id="nested pool in a Spark task"),
    ],
)
def test_a_forked_process_changes_nothing_of_the_breakdown(path: Path, directory: str, parent: int) -> None:
    """It is killed inside an import and inside a line. Its imports are listed as its own."""
    for pid in (31001, 31002):
        add(path, directory, pid, CHILD, parent, PANDAS, IMPORT, more='{"k":"e","i"')
    found, before = computed(path), Captured.computed("own-run")
    assert (found["status"], found["reason"], missing(found)) == ("ok", None, [])
    for same in ("unattributed_ns", "ranks", "startup", "teardown", "findings"):
        assert found[same] == before[same]
    assert [row for row in found["layers"] if row["ns"]] == [row for row in before["layers"] if row["ns"]]
    assert not [check for check in found["checks"] if check["verdict"] == "fail"]
    own = [row for row in found["imports"] if row["role"] == CHILD]
    assert [(row["package"], row["pid"]) for row in own] == [("pandas", 31001), ("pandas", 31002)]
    lane = "driver" if directory == "driver" else "executor-1"
    assert {f"{lane}/child-31001", f"{lane}/child-31002"} <= {span.lane for span in assemble(Evidence(path)).spans}


def test_a_damaged_file_of_a_forked_process_is_a_warning(path: Path) -> None:
    add(path, "driver", 31001, CHILD, DRIVER, PANDAS, more="x\ny\n")
    found = computed(path)
    assert found["status"] == "ok"
    (line,) = missing(found)
    assert line.endswith("has 2 damaged lines; unknown as a result: imports of processes that your code forked")


def test_the_children_of_a_rank_are_no_ranks(path: Path) -> None:
    whole = MAIN | {"k": "s", "d": 5 * 10**6}
    add(path, CONTAINER, 31000, "chief", WORKER, whole, COST)
    for pid in (31001, 31002):
        add(path, CONTAINER, pid, CHILD, 31000, IMPORT | {"i": 1, "p": 0})
    found = computed(path)
    assert (found["status"], missing(found)) == ("ok", [])
    assert [(rank["role"], rank["index"]) for rank in found["ranks"]] == [("chief", 0)]


def test_span_ids_are_unique_whatever_has_the_same_role(path: Path) -> None:
    """Several processes of one role: a script that trains twice, or children under their parent's role, as they were
    once recorded. A cycle of parents would never end."""
    whole = MAIN | {"k": "s", "d": 5 * 10**6}
    for pid in (31000, 31001, 31002):
        add(path, CONTAINER, pid, "chief", WORKER, whole, IMPORT | {"k": "s", "d": 10, "p": 1}, COST)
    ids = Counter(span.id for span in assemble(Evidence(path)).spans)
    assert [id_ for id_, count in ids.items() if count > 1] == []
    assert len(computed(path)["ranks"]) == 3


@pytest.mark.parametrize(
    ("role", "line", "more", "ok"),
    [
        pytest.param("evaluator", {}, "", True, id="evaluator"),
        pytest.param("ps", {}, "", True, id="parameter server"),
        pytest.param("evaluator", {}, '{"k":"e"', True, id="evaluator, killed while it writes"),
        pytest.param("chief", {"k": "s", "d": 9, "wait": True}, "", True, id="daemon thread of a rank"),
        pytest.param("chief", {}, "", False, id="rank that is killed"),
        pytest.param("master", {}, "", False, id="master that is killed"),
        pytest.param("evaluator", {}, "x\ny\n", False, id="evaluator with a damaged file"),
    ],
)
def test_nodes_without_an_end(path: Path, role: str, line: dict[str, Any], more: str, ok: bool) -> None:
    """TensorFlowOnSpark kills the nodes that only serve. A rank ends by itself: its last span must have an end."""
    waits = line.pop("wait", False)
    get = {"k": "b", "l": kinds.GET.layer, "n": kinds.GET, "i": 2, "p": 0, "th": "prefetch"}
    main = MAIN | {"a": {"role": role, "index": 0}} | line
    add(path, CONTAINER, 31000, role, WORKER, main, *([get] if waits else []), COST, more=more)
    found = computed(path)
    assert (found["status"] == "ok") == ok, found["reason"]
    assert bool(missing(found)) != ok
    lane = f"{role}-0" if role in ("evaluator", "ps") else "rank-0"
    assert [
        span.truncated for span in assemble(Evidence(path)).spans if span.lane == lane and span.kind is kinds.USER_MAIN
    ] == [not waits]


@pytest.mark.parametrize("role", ["evaluator", "ps"])
def test_no_sleep_waits_for_a_node_that_is_killed(path: Path, role: str) -> None:
    """TensorFlowOnSpark's shutdown sleeps on while only such nodes are left: the sleep has its own name."""
    main = MAIN | {"a": {"role": role, "index": 0}}
    add(path, CONTAINER, 31000, role, WORKER, main)
    add(path, CONTAINER, 30000, "chief", WORKER, MAIN | {"k": "s", "d": 5 * 10**6}, COST)
    evidence = Evidence(path)
    chief, server = sorted(ranks(evidence), key=lambda rank: rank.role)
    waits = _Waits(evidence, [chief, server])

    def waited(start_ns: int) -> object:
        wait = {"waits_for": [kinds.WAIT_TRAINERS], **kinds.TFCLUSTER_SHUTDOWN_POLL.wait(5 * 10**9, "sleep 5 s")}
        at = (start_ns, start_ns + 10**6, False)
        return waits.resolve(RecordedSpan(1, 0, kinds.SLEEP.layer, kinds.SLEEP, *at, wait, {}, ""), wait)  # type: ignore[arg-type]

    lanes = [(found["waits_for"], found["cause"]) for at in (chief.start_ns, chief.end_ns) if (found := waited(at))]
    name = "TensorFlowOnSpark TFCluster.shutdown poll (sleep 5 s)"
    assert lanes == [(("rank-0",), name), ((), name)]


def test_a_parameter_server_of_the_driver_may_be_killed(path: Path) -> None:
    """TFCluster.run(driver_ps_nodes=True) forks it on the driver, from a thread whose start task never ends."""
    add(path, "driver", 31000, "ps", DRIVER, MAIN | {"a": {"role": "ps", "index": 0}})
    found = computed(path)
    assert (found["status"], missing(found), found["ranks"]) == ("ok", [], [])

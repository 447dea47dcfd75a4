"""torchrun's agents in the lane that waits for them, and the ranks that they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlobd import spans as kinds
from dlobd.attribution.trace import Span
from dlobd.evidence.recorded_spans import RecordedSpan, RecordedSpans
from dlobd.evidence.recorder import Instant, RecordedProcess
from dlobd.schema import Process
from dlobd.spans import SpanKind
from dlobd.timeline.builder import LaneBuilder
from dlobd.timeline.executor import add_agents
from dlobd.timeline.ranks import Rank, whole_rank

S = 10**9


def span(kind: SpanKind, start_s: float, end_s: float, wait: Any = None, **attrs: object) -> RecordedSpan:
    bounds = int(start_s * S), int(end_s * S)
    return RecordedSpan(int(start_s * 10) + 1, 0, kind.layer, str(kind), *bounds, False, wait or {}, attrs, "")


def process(role: str, pid: int, parent: int, start_s: float, spans: list[RecordedSpan]) -> RecordedProcess:
    who, opened_ns = Process("h", role, 0, pid, int(start_s * S)), int((start_s + 1) * S)
    last_ns = max(one.end_ns for one in spans)
    called = [Instant(kinds.TORCHRUN_CALLED, opened_ns, {"pid": 5})] if role == kinds.TORCHRUN_ROLE else []
    own, path = RecordedSpans.of(spans), Path("d/spans-1-1.jsonl")
    return RecordedProcess(who, "d", opened_ns, False, path, last_ns, own, called, parent=parent)


def sleep(start_s: float) -> RecordedSpan:
    cause = kinds.TORCHRUN_POLL.wait(int(5.5 * S), "sleep 5 s")
    return span(kinds.SLEEP, start_s, start_s + 5, {"waits_for": [kinds.WAIT_TRAINER], **cause})


def trainer(pid: int, parent: int, end_s: float) -> Rank:
    main = span(kinds.USER_CODE, 13, end_s, role="worker", index=pid)
    made = whole_rank(process("worker", pid, parent, 12, [main]), "1", main)
    return Rank(made.process, "1", "worker", pid, made.start_ns, made.end_ns, True, main)


def lane(*processes: RecordedProcess, ranks: list[Rank]) -> dict[str, list[Span]]:
    builder = LaneBuilder("executor-1", Process("h", "executor", 1, 0))
    add_agents(lambda process, at_ns: builder, processes, ranks)
    found: dict[str, list[Span]] = {}
    for one in builder.spans:
        found.setdefault(str(one.kind), []).append(one)
    return found


def test_the_last_of_its_own_ranks_releases_the_sleep_of_an_agent() -> None:
    """The rest of the sleep is the poll. A rank of another agent has no part in it."""
    worker = process("python-worker", 5, 4, 0, [span(kinds.TORCHRUN, 5, 30)])
    agent = process(kinds.TORCHRUN_ROLE, 7, 6, 8, [sleep(15), sleep(20)])
    found = lane(worker, agent, ranks=[trainer(1, 7, 18), trainer(2, 7, 21.5), trainer(3, 99, 24)])
    during, last = found[kinds.SLEEP]
    assert (during.waits_for, during.released_ns) == (("rank-3",), None)
    assert (last.waits_for, last.released_ns) == (("rank-3",), int(21.5 * S))
    assert last.cause_kind is kinds.TORCHRUN_POLL


def test_the_wrapper_surrounds_its_agent() -> None:
    commands = [span(kinds.TORCHRUN, 5, 30), span(kinds.TORCHRUN, 40, 60)]
    worker = process("python-worker", 5, 4, 0, commands)
    agents = [process(kinds.TORCHRUN_ROLE, pid, 6, at, [sleep(at + 2)]) for pid, at in ((7, 8), (8, 43))]
    found = lane(worker, *agents, ranks=[])
    bounds = {kind: [(one.start_ns // S, one.end_ns // S) for one in found[kind]] for kind in found}
    assert bounds[kinds.TORCHRUN_WRAPPER_STARTS] == [(5, 8), (40, 43)]
    assert bounds[kinds.TORCHRUN_STARTS] == [(8, 9), (43, 44)]
    assert bounds[kinds.TORCHRUN_EXITS] == [(15, 30), (50, 60)]
    assert [one.waits_for for one in found[kinds.SLEEP]] == [(), ()]  # no rank was recorded


def test_the_main_function_of_a_rank_names_its_framework() -> None:
    assert trainer(1, 7, 18).framework == "PyTorch"
    main = span(kinds.TRAINER, 1, 2, role="chief", index=0)
    assert whole_rank(process("chief", 1, 0, 0, [main]), "1", main).framework == "XGBoost"
    main = span(kinds.USER_MAIN, 1, 2, role="chief", index=0)
    assert whole_rank(process("chief", 1, 0, 0, [main]), "1", main).framework == ""

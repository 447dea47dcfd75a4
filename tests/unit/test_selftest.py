"""The self-test fails on a wrong breakdown, and repeats only delays that the run demonstrably hid."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Spans
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.rpc import Call
from dlobd.faults import injection_log
from dlobd.faults.injection_log import Injection
from dlobd.layers import LAYERS
from dlobd.selftest import report as report
from dlobd.selftest import runs, score
from dlobd.selftest.injection_points import POINTS
from dlobd.selftest.runs import SelftestRun
from dlobd.timeline.assemble import assemble
from tests.records import run as run_of
from tests.strategies import span, trace_of

S = 1_000_000_000
MS = 1_000_000
OK = run_of()
EMPTY = attribute(trace_of(0, S, ()))


def recoveries(*delays: tuple[str, int, int]) -> list[score.Recovery]:
    """Score delays (point, start, end) in a run of spark [0, 10), yarn [10, 20), nothing, tensorflow [25, 40) s."""
    spans = (
        span("a", "spark", 0, 10 * S),
        span("b", "yarn", 10 * S, 20 * S),
        span("c", "tensorflow", 25 * S, 40 * S),
        span("w", "feed", 30 * S, 32 * S, waits_for=("nobody",)),
    )
    attribution = attribute(trace_of(0, 40 * S, spans))
    return [score.blame(Injection(point, end - start, start, end), attribution, "run") for point, start, end in delays]


def test_a_delay_is_looked_up_in_the_attributed_wall() -> None:
    inside, across, hole, waits, outside = recoveries(
        ("yarn/queue", 11 * S, 12 * S),
        ("yarn/localise", 19 * S, 21 * S),
        ("spark/slow-task", 21 * S, 22 * S),
        ("feed/get", 30 * S, 32 * S),
        ("tensorflow/step", 39 * S, 41 * S),
    )
    assert (inside.blamed, inside.verdict) == ({"yarn": S}, "found")
    assert (across.blamed, across.verdict) == ({"yarn": S, "unattributed": S}, "wrong")
    assert (hole.blamed, hole.verdict) == ({"unattributed": S}, "wrong")
    assert (waits.blamed, waits.verdict) == ({"unexplained": 2 * S}, "wrong")
    assert (outside.blamed, outside.verdict) == ({"tensorflow": S, "unattributed": S}, "wrong")


def test_the_target_has_two_sides() -> None:
    start = 10 * S
    delays = [Injection("spark/slow-task", S, start - S + late, start + late) for late in (19 * MS, 21 * MS)]
    attribution = attribute(trace_of(0, 20 * S, (span("a", "spark", 0, start), span("b", "yarn", start, 20 * S))))
    assert [score.blame(delay, attribution, "r").ok for delay in delays] == [True, False]


def test_the_regression_shows_a_lost_share() -> None:
    """Half of each delay is recovered: slope 0.5, and no intercept."""
    half = [
        score.Recovery("r", Injection("hdfs/read", n * S, 0, n * S), score.HeldUp(0, n * S), {"hdfs": n * S // 2})
        for n in (1, 2, 4)
    ]
    line = score.lines(half)["hdfs"]
    assert line.slope == pytest.approx(0.5)
    assert line.intercept_ns == pytest.approx(0, abs=1)
    assert (line.delays, line.held_ns, line.recovered_ns) == (3, 7 * S, 7 * S // 2)
    assert score.lines(half[:1])["hdfs"].slope is None


def test_another_part_of_the_right_layer_is_not_enough() -> None:
    spans = (span("a", "channel", 0, 10 * S), span("b", "tensorflow", 10 * S, 20 * S))
    delay = score.blame(Injection("channel/pack", S, S, 2 * S), attribute(trace_of(0, 20 * S, spans)), "r")
    assert (delay.blamed, delay.verdict) == ({score.ELSEWHERE: S}, "wrong")


# ---- what the trace allows: spark computes until 10 s, then calls the NameNode until 20 s

CALLING = attribute(trace_of(0, 20 * S, (span("a", "spark", 0, 10 * S), span("b", "hdfs", 10 * S, 20 * S))))
CALL = Call("create", "/file", "main", 10 * S, 20 * S)
WRONG_LAYER = attribute(trace_of(0, 20 * S, (span("a", "spark", 0, 20 * S),)))


@pytest.mark.parametrize(
    ("start_ns", "calls", "verdict", "held_ns"),
    [
        (11 * S, [CALL], "found", 9 * S),
        (7 * S, [CALL], "found", 10 * S),  # the client computed for 3 s before it called the stopped daemon
        (0, [CALL], "found", 10 * S),
        (0, [Call("create", "", "main", 11 * S, 20 * S)], "hidden", 9 * S),
        (7 * S, [Call("create", "", "main", 10 * S, 19 * S)], "hidden", 0),  # answered before the delay ended
        (7 * S, [], "hidden", 0),
        (7 * S, [Call("allocate", "", "main", 10 * S, 20 * S)], "hidden", 0),  # a call of another daemon
    ],
)
def test_a_stopped_daemon_counts_from_the_call_that_waits_for_it(
    start_ns: int, calls: list[Call], verdict: str, held_ns: int
) -> None:
    delay = Injection("hdfs/staging", 20 * S - start_ns, start_ns, 20 * S)
    recovery = score.blame(delay, CALLING, "r", calls)
    assert (recovery.verdict, recovery.held_ns) == (verdict, held_ns)


def test_a_daemon_in_the_wrong_layer_is_wrong_although_its_client_waited() -> None:
    recovery = score.blame(Injection("hdfs/staging", 13 * S, 7 * S, 20 * S), WRONG_LAYER, "r", [CALL])
    assert (recovery.blamed, recovery.verdict) == ({"spark": 10 * S}, "wrong")


def test_a_jvm_stopped_inside_a_call_looks_like_a_slow_daemon() -> None:
    delay = Injection("spark/am-request", S, 12 * S, 13 * S)
    within, outside = (score.blame(delay, CALLING, "r", calls) for calls in ([CALL], []))
    assert (within.held.inside, within.verdict) == ("create", "hidden")
    assert (outside.held.inside, outside.verdict) == ("", "wrong")
    assert score.blame(replace(delay, start_ns=S, end_ns=2 * S), CALLING, "r", []).verdict == "found"


def test_a_delay_is_hidden_if_the_critical_path_moves_on_meanwhile() -> None:
    spans = (span("a", "hdfs", 0, 10 * S), span("b", "spark", 10 * S, 20 * S))
    attribution = attribute(trace_of(0, 20 * S, spans))
    assert score.blame(Injection("yarn/localise", 4 * S, 8 * S, 12 * S), attribution, "r").verdict == "hidden"
    assert score.blame(Injection("yarn/localise", 4 * S, 12 * S, 16 * S), attribution, "r").verdict == "wrong"


# ---- repetitions

PLAN = runs.Plan("feed", 0, (), {"hdfs/staging": [1.0], "spark/task": [1.0], "feed/put": [0.1, 0.2]})


def ran(plan: runs.Plan, verdicts: dict[str, str], missing: tuple[str, ...] = ()) -> SelftestRun:
    """A run of a plan in which points have verdicts; all others are found."""
    attributions = {"found": "", "wrong": "client", "hidden": "client"}
    scored = []
    for point in plan.delays:
        if point not in missing:
            verdict = verdicts.get(point, "found")
            layer = attributions[verdict] or POINTS[point].layer
            inside = "call" if verdict == "hidden" else ""
            held = score.HeldUp(0, S, inside)
            scored.append(score.Recovery(plan.name, Injection(point, S, 0, S), held, {layer: S}))
            assert scored[-1].verdict == verdict
    return SelftestRun(plan, Path(plan.name), OK, EMPTY, (), tuple(scored), missing)


def test_hidden_and_missing_delays_are_repeated_and_reported() -> None:
    names: list[str] = []

    def execute(plan: runs.Plan) -> SelftestRun:
        names.append(plan.name)
        if plan.attempt:
            assert plan.delays == {"hdfs/staging": [1.0], "feed/put": [0.1, 0.2]}
            return ran(plan, {})
        return ran(plan, {"hdfs/staging": "hidden"}, ("feed/put",))

    first, second = runs.attempts(PLAN, execute)
    assert names == ["feed-0", "feed-0-repeat-1"]
    assert first.repeated == {"hdfs/staging", "feed/put"}
    assert first.ok
    assert second.ok
    whole = report.document([first, second])
    assert whole["ok"]
    assert [delay["repeated"] for delay in whole["delays"]] == [True, False, False, False]
    assert "3 of 3 delays were found" in report.verdicts(whole)[0]
    assert report.verdicts(whole)[0].endswith("repeated: feed/put, hdfs/staging; nothing was injected into " + NEVER)
    (line,) = report.exceptions(whole)
    assert line.startswith(
        "run feed-0: the delay of 1.000 s at hdfs/staging is hidden; it held up the job for 1.000 s, stopped inside"
    )
    assert line.endswith("; repeated")


NEVER = ", ".join(layer for layer in LAYERS if layer not in ("hdfs", "spark", "feed"))


def test_repetitions_are_bounded() -> None:
    all_runs = list(runs.attempts(PLAN, lambda plan: ran(plan, {"spark/task": "hidden"})))
    assert [each.plan.attempt for each in all_runs] == list(range(runs.REPEATS + 1))
    assert [each.ok for each in all_runs] == [True] * runs.REPEATS + [False]
    assert not report.document(all_runs)["ok"]


def test_a_wrong_breakdown_is_never_repeated() -> None:
    (wrong,) = runs.attempts(PLAN, lambda plan: ran(plan, {"spark/task": "wrong", "hdfs/staging": "hidden"}))
    assert not wrong.ok
    control = replace(PLAN, delays={"hdfs/staging": [0.0]})
    assert len(list(runs.attempts(control, lambda plan: ran(plan, {}, ("hdfs/staging",))))) == 1
    failed = run_of(status="failed")
    assert len(list(runs.attempts(PLAN, lambda plan: replace(ran(plan, {}, ("feed/put",)), record=failed)))) == 1


def test_the_users_own_job_repeats_all_of_its_points() -> None:
    plan = runs.Plan("own", 0, (), {"user/script": [1.0], "user/task": [2.0]}, own=True)
    assert plan.repeat({"user/task"}, 1).delays == plan.delays


def test_a_planted_wrong_layer_fails_the_self_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the NameNode in a captured run serves as the delay. The right breakdown finds it. With the
    layers of the spans exchanged, the breakdown is wrong, and the run is not repeated."""
    bundle = Path(__file__).parents[1] / "data" / "quick-run"
    plan = runs.Plan("feed", 0, (), {"hdfs/staging": [0.01]})
    calls = runs.rpc_calls(plan, bundle, POINTS["hdfs/staging"])
    assert calls
    call = max((call for call in calls if call.method == "mkdirs"), key=lambda call: call.end_ns - call.start_ns)
    delay = Injection("hdfs/staging", call.end_ns - call.start_ns, call.start_ns, call.end_ns)
    injection_log.write(tmp_path, delay)
    right = runs.score_run(plan, bundle, tmp_path)
    assert [(recovery.verdict, recovery.held_ns) for recovery in right.recoveries] == [("found", delay.ns)]
    trace = assemble(Evidence(bundle))
    wrong = kinds.SpanKind("planted", "spark")
    spans = Spans.of(replace(span, kind=wrong) if span.layer == "hdfs" else span for span in trace.spans)
    monkeypatch.setattr(runs, "assemble", lambda evidence: replace(trace, spans=spans))
    planted = runs.score_run(plan, bundle, tmp_path)
    assert [(recovery.verdict, recovery.blamed) for recovery in planted.recoveries] == [("wrong", {"spark": delay.ns})]
    assert not planted.repeatable
    assert not report.document([planted])["ok"]


# ---- reports and plans


def test_a_blind_attribution_fails_the_self_test() -> None:
    wall_ns = len(POINTS) * S
    everything = attribute(trace_of(0, wall_ns, (span("a", "tensorflow", 0, wall_ns),)))
    delays = [Injection(name, S, i * S, (i + 1) * S) for i, name in enumerate(POINTS)]
    blind = SelftestRun(
        runs.Plan("feed", 0, (), {"feed/put": [1.0]}),
        Path("run"),
        OK,
        everything,
        tuple(delays),
        tuple(score.blame(delay, everything, "run") for delay in delays),
        (),
    )
    assert blind.repeatable == frozenset()
    whole = report.document([blind])
    assert not whole["ok"]
    assert {layer: list(row) for layer, row in whole["confusion"].items()} == {
        point.layer: ["tensorflow"] for point in POINTS.values()
    }
    console = Console(width=100, record=True, file=io.StringIO())
    report.tables([blind], console)
    right = sum(point.layer == "tensorflow" for point in POINTS.values())
    assert f"FAILED: {right} of {len(delays)} delays were found" in console.export_text()


def test_a_missing_delay_fails_the_self_test() -> None:
    """Otherwise an injector that does nothing would pass."""
    assert score.missing({"feed/put": [0.1, 0.2], "hdfs/read": [1]}, [Injection("feed/put", 1, 0, 1)]) == [
        "feed/put",
        "hdfs/read",
    ]
    plan = runs.Plan("read", 0, (), {"hdfs/read": [1]})
    assert not SelftestRun(plan, Path("run"), OK, EMPTY, (), (), ("hdfs/read",)).ok
    assert not report.document([SelftestRun(plan, Path("run"), OK, EMPTY, (), (), ())])["ok"], "no delay at all"


WAYS_AND_BLOCKS = {(plan.way, plan.block) for plan in runs.full()}
SLOW = Injection("hdfs/disk", 3 * S, 0, 40 * S)


def test_the_plans_pass_every_point_with_every_size() -> None:
    assert len(runs.quick()) == 5
    own = {name for name, point in POINTS.items() if point.layer == "user" or point.whole_run}
    assert {point for plan in runs.quick() for point in plan.delays} == POINTS.keys() - own
    sizes = {name: {s for plan in runs.full() for s in plan.delays.get(name, ()) if s} for name in POINTS}
    assert sizes == {name: set() if point.whole_run else set(runs.SIZES_S) for name, point in POINTS.items()}
    assert {point.layer for point in POINTS.values()} == LAYERS.keys()
    assert {name for name, point in POINTS.items() if point.stop} == {n for n, p in POINTS.items() if p.by == "signal"}
    pairs = [[plan for plan in runs.full() if (plan.way, plan.block) == key] for key in WAYS_AND_BLOCKS]
    assert all(sorted(plan.control for plan in pair) == [False, True] for pair in pairs)
    assert all(len({(plan.settings, plan.own, tuple(plan.delays)) for plan in pair}) == 1 for pair in pairs)
    assert len({plan.name for plan in runs.full()}) == len(runs.full())


def test_a_slow_disk_is_a_way_with_controls() -> None:
    """It has no interval, so that only the totals show it."""
    more = [plan for plan in runs.full(slow_disk=True) if plan not in runs.full()]
    assert [plan.control for plan in sorted(more, key=lambda plan: (plan.block, plan.control))] == [False, True] * 6
    assert score.totals_of("disk", 0, [SLOW], EMPTY).injected == {"hdfs": 3 * S}

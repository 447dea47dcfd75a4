"""Layer totals against controls, and the share of a run that a self-test proves."""

from __future__ import annotations

from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Attribution
from dlobd.faults.injection_log import Injection
from dlobd.selftest import score
from dlobd.spans import DONE_MARKER_POLL
from tests.strategies import span, trace_of

S = 1_000_000_000
MS = 1_000_000


def run_of(yarn_ns: int, spark_ns: int) -> Attribution:
    """A run of YARN, then Spark, then one second without a span."""
    spans = (span("a", "yarn", 0, yarn_ns), span("b", "spark", yarn_ns, yarn_ns + spark_ns))
    return attribute(trace_of(0, yarn_ns + spark_ns + S, spans))


def compared(lost_ns: int, blocks: int) -> dict[str, score.Total]:
    """Compares blocks with two seconds in YARN, of which `lost_ns` appear in Spark; runs differ a little."""
    delay = Injection("yarn/queue", 2 * S, S, 3 * S)
    delayed, controls = [], []
    for block in range(blocks):
        noise_ns = (-1) ** block * block * MS
        found = run_of(5 * S - lost_ns + noise_ns, 4 * S + lost_ns - noise_ns)
        delayed.append(score.totals_of("feed", block, [delay], found))
        controls.append(score.totals_of("feed", block, [], run_of(3 * S, 4 * S)))
    return {one.layer: one for one in score.compared(delayed, controls)}


def test_the_totals_contain_the_injected_time() -> None:
    found = compared(0, 6)
    assert found["yarn"].injected_ns == (2 * S,) * 6
    assert found["yarn"].errors_ns == (0, -MS, 2 * MS, -3 * MS, 4 * MS, -5 * MS)
    error = found["yarn"].error_ns
    assert (error.low, error.high, error.coverage) == (-5 * MS, 4 * MS, 1 - 2 / 64)
    assert [one.holds for one in found.values()] == [True] * 3
    assert found["unattributed"].errors_ns == (0,) * 6


def test_a_later_effect_in_another_layer_is_noticed() -> None:
    found = compared(S // 5, 6)
    assert (found["yarn"].holds, found["spark"].holds, found["unattributed"].holds) == (False, False, True)
    assert found["spark"].error_ns.value > S // 6


def test_a_control_has_the_delays_with_length_0() -> None:
    delay, none = Injection("yarn/queue", 2 * S, S, 3 * S + MS), Injection("yarn/queue", 0, S, S + MS)
    runs = [score.totals_of("feed", block, [delay], run_of(5 * S + MS, S)) for block in range(6)]
    controls = [score.totals_of("feed", block, [none], run_of(3 * S + MS, S)) for block in range(6)]
    found = {one.layer: one for one in score.compared(runs, controls)}
    assert (found["yarn"].injected_ns, found["yarn"].holds) == ((2 * S,) * 6, True)


def test_too_few_blocks_give_no_interval() -> None:
    found = compared(S, 5)
    assert (found["yarn"].error_ns.low, found["yarn"].holds) == (None, None)


def test_runs_without_their_control_are_left_out() -> None:
    run = score.totals_of("feed", 0, [], run_of(S, S))
    other = score.totals_of("feed", 1, [], run_of(S, S))
    assert score.compared([run], [other]) == []


def test_a_delay_proves_the_span_that_contains_it() -> None:
    found = run_of(5 * S, 4 * S)
    inside = Injection("yarn/queue", S, S, 2 * S)
    across = Injection("yarn/queue", S, 5 * S - S // 10, 6 * S - S // 10)
    assert score.touched([inside], found) == {("yarn", "a")}
    assert score.touched([across], found) == {("spark", "b")}
    covered = score.coverage_of(found, score.touched([inside], found))
    assert (covered.wall_ns, covered.touched_ns) == (10 * S, 5 * S)
    assert covered.untouched_ns == ((("spark", "b"), 4 * S), (("unattributed", "unattributed"), S))


def test_a_span_does_not_prove_its_poll() -> None:
    wait = span("w", "spark", 0, 4 * S, cause="poll", cause_period_ns=S)
    covered = score.coverage_of(attribute(trace_of(0, 4 * S, (wait,))), {("spark", "w")})
    assert covered.untouched_ns == ((("spark", "poll"), S),)
    assert covered.asleep_ns == 0, "its length is a default value"


def test_a_sleep_of_known_length_is_counted_apart() -> None:
    read = DONE_MARKER_POLL
    wait = span("w", "spark", 0, 4 * S, cause=read, cause_period_ns=S)
    covered = score.coverage_of(attribute(trace_of(0, 4 * S, (wait,))), {("spark", "w")})
    assert (covered.touched_ns, covered.asleep_ns) == (3 * S, S)

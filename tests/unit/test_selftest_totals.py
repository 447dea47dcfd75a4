"""Layer totals against controls, and how much of a run a self-test proves."""

from __future__ import annotations

from strategies import span

from dlobd.attribution.attribute import attribute
from dlobd.schema import Attribution, Trace
from dlobd.selftest import coverage, totals
from dlobd.selftest.truth import Injection
from dlobd.spans import DONE_MARKER_POLL

S = 1_000_000_000
MS = 1_000_000


def run_of(yarn_ns: int, spark_ns: int) -> Attribution:
    """YARN first, then Spark, then one second of nothing."""
    spans = (span("a", "yarn", 0, yarn_ns), span("b", "spark", yarn_ns, yarn_ns + spark_ns))
    return attribute(Trace(0, yarn_ns + spark_ns + S, spans))


def compared(lost_ns: int, blocks: int) -> dict[str, totals.Total]:
    """Two seconds into YARN in each block, of which `lost_ns` came out in Spark instead; runs differ a little."""
    delay = Injection("yarn/queue", 2 * S, S, 3 * S)
    delayed, controls = [], []
    for block in range(blocks):
        noise_ns = (-1) ** block * block * MS
        found = run_of(5 * S - lost_ns + noise_ns, 4 * S + lost_ns - noise_ns)
        delayed.append(totals.of_run("feed", block, [delay], found))
        controls.append(totals.of_run("feed", block, [], run_of(3 * S, 4 * S)))
    return {one.layer: one for one in totals.compared(delayed, controls)}


def test_what_was_injected_comes_back_in_the_totals() -> None:
    """Within the noise: zero lies in each interval, also that of the layer without a delay."""
    found = compared(0, 6)
    assert found["yarn"].injected_ns == (2 * S,) * 6
    assert found["yarn"].errors_ns == (0, -MS, 2 * MS, -3 * MS, 4 * MS, -5 * MS)
    error = found["yarn"].error_ns
    assert (error.low, error.high, error.coverage) == (-5 * MS, 4 * MS, 1 - 2 / 64)
    assert [one.holds for one in found.values()] == [True] * 3
    assert found["unattributed"].errors_ns == (0,) * 6


def test_a_ripple_into_another_layer_is_noticed() -> None:
    """A tenth of the delay came out elsewhere: neither total holds."""
    found = compared(S // 5, 6)
    assert (found["yarn"].holds, found["spark"].holds, found["unattributed"].holds) == (False, False, True)
    assert found["spark"].error_ns.value > S // 6


def test_a_control_has_the_delays_too_but_of_no_length() -> None:
    """What stopping and going on takes is in both, and is no part of what was injected."""
    delay, none = Injection("yarn/queue", 2 * S, S, 3 * S + MS), Injection("yarn/queue", 0, S, S + MS)
    runs = [totals.of_run("feed", block, [delay], run_of(5 * S + MS, S)) for block in range(6)]
    controls = [totals.of_run("feed", block, [none], run_of(3 * S + MS, S)) for block in range(6)]
    found = {one.layer: one for one in totals.compared(runs, controls)}
    assert (found["yarn"].injected_ns, found["yarn"].holds) == ((2 * S,) * 6, True)


def test_too_few_blocks_give_no_interval() -> None:
    """Nor a verdict, whatever the error."""
    found = compared(S, 5)
    assert (found["yarn"].error_ns.low, found["yarn"].holds) == (None, None)


def test_runs_without_their_control_are_left_out() -> None:
    """Another block's control is another time's."""
    run = totals.of_run("feed", 0, [], run_of(S, S))
    other = totals.of_run("feed", 1, [], run_of(S, S))
    assert totals.compared([run], [other]) == []


def test_a_span_is_proved_by_a_delay_that_lies_in_it() -> None:
    """Not by one that touches its edge, nor by one of which it has the smaller part."""
    found = run_of(5 * S, 4 * S)
    inside = Injection("yarn/queue", S, S, 2 * S)
    across = Injection("yarn/queue", S, 5 * S - S // 10, 6 * S - S // 10)
    assert coverage.touched([inside], found) == {("yarn", "a")}
    assert coverage.touched([across], found) == {("spark", "b")}
    covered = coverage.of_run(found, coverage.touched([inside], found))
    assert (covered.wall_ns, covered.touched_ns, covered.share) == (10 * S, 5 * S, 0.5)
    assert covered.untouched_ns == ((("spark", "b"), 4 * S), (("unattributed", "unattributed"), S))


def test_a_poll_is_not_proved_by_its_span() -> None:
    """Of a wait only what is its own counts as its span."""
    wait = span("w", "spark", 0, 4 * S, cause="poll", cause_period_ns=S)
    covered = coverage.of_run(attribute(Trace(0, 4 * S, (wait,))), {("spark", "w")})
    assert covered.untouched_ns == ((("spark", "poll"), S),)
    assert covered.asleep_ns == 0, "its length is a default"


def test_a_sleep_whose_length_was_read_is_counted_apart() -> None:
    """Nothing is done in it, so that nothing can be delayed."""
    read = DONE_MARKER_POLL
    wait = span("w", "spark", 0, 4 * S, cause=read, cause_period_ns=S)
    covered = coverage.of_run(attribute(Trace(0, 4 * S, (wait,))), {("spark", "w")})
    assert (covered.touched_ns, covered.asleep_ns) == (3 * S, S)

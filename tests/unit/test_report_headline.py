"""The headline of a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dlobd.record.run import Run
from dlobd.report.headline import TENTH_NS, headline, tenths

RUN = Run.from_json(json.loads((Path(__file__).parents[1] / "golden" / "run.json").read_text()))


def test_the_headline_names_the_layers_the_largest_first() -> None:
    """Seconds of each layer, the percentage of the largest, small layers in one sum, and the time of training."""
    run = dataclasses.replace(RUN, metrics=dataclasses.replace(RUN.metrics, training_ns=19_760_000_000))
    assert headline(run) == (
        "The run took 50.0 s: TensorFlow 21.3 s (43 %), Spark 14.2 s, YARN 7.7 s, Launcher 5.1 s, other 1.3 s, "
        "unattributed 0.4 s; training took 19.8 s."
    )


def test_a_run_that_failed_states_its_reason() -> None:
    assert (
        headline(dataclasses.replace(RUN, status="failed", reason="rank 1 ended")) == "The run is failed: rank 1 ended."
    )


def test_a_run_without_a_window_was_not_measured() -> None:
    assert headline(dataclasses.replace(RUN, wall_ns=None)) == "Nothing was measured."


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8))
def test_rounded_parts_sum_to_the_rounded_wall(parts_ns: list[int]) -> None:
    total, parts = tenths(sum(parts_ns), parts_ns)
    assert sum(parts) == total
    assert all(abs(part * TENTH_NS - ns) < TENTH_NS for part, ns in zip(parts, parts_ns, strict=True))

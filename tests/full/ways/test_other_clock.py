"""The quick experiment with one executor whose Python has another monotonic clock: a time namespace of its own."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from dlobd.evidence.evidence import Evidence
from tests import timens
from tests.cluster.test_ways import explained

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(580)]

SHIFT_S = 5000

PYTHON = """\
#!/bin/sh
# the first worker daemon that is started, and all that it forks, lives in the other namespace
case "$*" in
  *_daemon*) if mkdir {taken} 2>/dev/null; then exec {ahead} {python} "$@"; fi ;;
esac
exec {python} "$@"
"""


@pytest.fixture
def two_clocks(tmp_path: Path) -> dict[str, str]:
    """An environment in which dlobd gives Spark a Python that is started in another time namespace once."""
    wrapper = tmp_path / "python"
    ahead, python = shlex.join(timens.ahead(SHIFT_S)), shlex.quote(sys.executable)
    wrapper.write_text(PYTHON.format(taken=shlex.quote(str(tmp_path / "taken")), ahead=ahead, python=python))
    wrapper.chmod(0o755)
    # dlobd tells Spark its own interpreter
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(wrapper)!r}\n")
    return {"PYTHONPATH": str(site)}


def test_a_worker_with_another_clock(dlobd: Any, two_clocks: dict[str, str]) -> None:
    ended = dlobd.run(within_s=540, **two_clocks)
    assert ended.code == 0, ended.err
    layers = explained(ended.bundle)
    assert {"yarn", "spark", "launcher", "feed", "hdfs", "tensorflow"} <= layers.keys()
    run = json.loads((ended.bundle.path / "run.json").read_text())
    assert [clip for clip in run["clips"] if clip["kind"] == "inconsistent"] == []
    (warning,) = [line for line in run["warnings"] if "message pairs" in line]
    print(warning)
    assert not [line for line in run["warnings"] if "wall clocks" in line]
    for layer in run["layers"]:
        assert layer["lo_ns"] <= layer["ns"] <= layer["hi_ns"]
    evidence = Evidence(ended.bundle.path)
    other = {process.domain for process in evidence.processes} - {run["window"]["clock"]}
    assert other == evidence.alignment.clocks.keys()
    (clock,) = evidence.alignment.clocks.values()
    assert clock.offset.steps == ()
    moved = [process for process in evidence.processes if process.domain in other]
    assert {"chief", "worker"} & {process.process.role for process in moved}, "a trainer is among them"
    for process in moved:
        for at_ns in (process.opened_ns, process.last_ns):
            bounds = clock.offset.at(at_ns + SHIFT_S * 10**9)
            assert bounds.lo_ns <= -SHIFT_S * 10**9 <= bounds.hi_ns
            assert run["window"]["start_ns"] < at_ns < run["window"]["end_ns"]

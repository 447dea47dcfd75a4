"""The step loop with the real trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlobd.selftest.step_loop import Loop
from tests import forks

SHORT_LOOP = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from dlobd.selftest import step_loop
step_loop.WARM_UP_STEPS, step_loop.PAIRS, step_loop.BLOCK_STEPS = 5, 3, 4
print(json.dumps(asdict(step_loop.run(Path(sys.argv[1]), 0))))
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_loop_runs_the_real_trainer(tmp_path: Path) -> None:
    done = forks.first(["-c", SHORT_LOOP, tmp_path], 170)
    assert done.returncode == 0, done.stderr
    loop = Loop(**json.loads(done.stdout.splitlines()[-1]))
    assert len(loop.on_ns) == len(loop.off_ns) == 3
    assert min(*loop.on_ns, *loop.off_ns) > 0
    lines = [line for path in tmp_path.glob("spans-*.jsonl") for line in path.read_text().splitlines()]
    steps = [line for line in lines if '"n":"step"' in line or '"n":"first step"' in line]
    assert len(steps) == 5 + 3 * 4 + 1

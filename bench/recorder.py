"""What recording costs: nanoseconds a span, and the real trainer's step loop with and without the recorder.

python -m bench.recorder on|off DIRECTORY     one loop in a process of its own; prints seconds
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.tables import Table, compared
from dlobd import experiment, trace
from dlobd.datasets import tfrecord
from dlobd.launchers.base import Node
from dlobd.registry import DATASETS
from dlobd.workloads import trainer
from dlobd.workloads.job import Job

STEPS = 2000
TIMEOUT_S = 120


class MemoryFeed:
    """A feed that never makes the trainer wait, with the span that real feeds have; notes when it was asked."""

    def __init__(self, block: bytes) -> None:
        self._block = block
        self.asked_ns: list[int] = []

    def next_block(self) -> bytes:
        self.asked_ns.append(time.perf_counter_ns())
        with trace.span("feed", "get"):
            return self._block


def loop_s(directory: Path) -> float:
    """Seconds of the step loop of one rank on SoftMax, from its second step to its last."""
    main = experiment.load("softmax-mnist")
    dataset = DATASETS.get(main.dataset)()
    (images, labels), test = dataset.load("train"), dataset.load("test")
    block = tfrecord.encode(images[: main.batch_size], labels[: main.batch_size])
    (directory / "test").write_bytes(tfrecord.encode(*test))
    known: dict[str, Any] = {field.name: getattr(main, field.name, "") for field in dataclasses.fields(Job)}
    facts = {"workers": 1, "steps": STEPS, "checkpoint_every_steps": 0, "webhdfs_url": "", "image_values": 784}
    paths = {"test_path": f"{directory}/test", "run_dir": str(directory), "classes": 10}
    feed = MemoryFeed(block)
    trainer.main(Job(**(known | facts | paths)), Node("chief", 0, 1, feed))
    return (feed.asked_ns[-1] - feed.asked_ns[1]) / 1e9


def measure(directory: Path, recorder: str) -> float:
    """`loop_s` in a process of its own; `recorder` is on or off."""
    command = [sys.executable, "-m", "bench.recorder", recorder, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return float(done.stdout.split()[-1])


def table(seconds: dict[str, list[float | None]]) -> Table:
    """`seconds` is on and off to what `measure` returned."""
    says = f"{STEPS} steps of one rank on blocks that lie in memory, three spans a step: microseconds a step."
    per_step = {label: [s / STEPS * 1e6 if s else None for s in own] for label, own in seconds.items()}
    return compared("Step loop with and without the recorder", says, "us", per_step, "off")


if __name__ == "__main__":
    if sys.argv[1] == "on":
        trace.start(sys.argv[2], "chief")
    print(loop_s(Path(sys.argv[2])))

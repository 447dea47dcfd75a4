"""Measures the cost of recording in a step: the real training loop, with the recorder on and off in one process.

Recording is switched every `BLOCK_STEPS` steps, in random order within a pair, so that drift affects both halves. A
process gives one value, because the memory layout differs between processes. The records of a block are written before
its time ends. The training data lies in memory, so that only the step itself can hide the cost.

    python -m dlobd.selftest.step_loop DIRECTORY SEED      one loop; the last line is a `Loop` as JSON
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.compare.median import Estimate, median
from dlobd.experiment import files
from dlobd.job.datasets import tfrecord
from dlobd.job.datasets.base import Dataset, Split, dataset_of, layout_of
from dlobd.job.description import Job
from dlobd.job.launchers.base import Node
from dlobd.job.training import trainer

BLOCK_STEPS = 50
PAIRS = 40
PROCESSES = 6
WARM_UP_STEPS = 200
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Loop:
    """Nanoseconds per step in one process, a value per block of `BLOCK_STEPS`; `off_ns[k]`, `on_ns[k]` are a pair."""

    off_ns: tuple[float, ...]
    on_ns: tuple[float, ...]

    @property
    def added_ns(self) -> float:
        """Added time of a step: the median difference of the pairs."""
        return statistics.median(on - off for off, on in zip(self.off_ns, self.on_ns, strict=True))

    @property
    def step_ns(self) -> float:
        """Time of a step without recording: the median of the blocks."""
        return statistics.median(self.off_ns)


def added_ns(loops: Sequence[Loop]) -> Estimate | None:
    """Return the added time of a step: the median over processes, with its interval."""
    return median(loop.added_ns for loop in loops)


class AlternatingFeed:
    """Feed without waits, with the span of a real feed. It switches the recorder after each block of steps."""

    def __init__(self, block: bytes, recorder: tracing.Recorder, seed: int) -> None:
        self._block = block
        self._recorder = recorder
        chance = random.Random(seed)
        self._turns = [way for _ in range(PAIRS) for way in chance.sample(("off", "on"), 2)]
        self._took: dict[str, list[float]] = {"off": [], "on": []}
        self._now = ""
        self._left = WARM_UP_STEPS
        self._began_ns = 0

    def next_block(self) -> bytes:
        """Return the same block each time."""
        if not self._left:
            self._turn()
        self._left -= 1
        with tracing.span(kinds.GET) as waiting:
            waiting.note(bytes=len(self._block))
            return self._block

    def stop(self) -> None:
        """Do nothing, because there is no read-ahead thread."""

    def _turn(self) -> None:
        self._recorder.flush()
        ended_ns = time.perf_counter_ns()
        if self._now:
            self._took[self._now].append((ended_ns - self._began_ns) / BLOCK_STEPS)
        self._now = self._turns.pop(0) if self._turns else ""
        self._left = BLOCK_STEPS
        tracing.switch(None if self._now == "off" else self._recorder)
        self._began_ns = time.perf_counter_ns()

    def loop(self) -> Loop:
        """Return the measured times, after the last block of steps."""
        return Loop(tuple(self._took["off"]), tuple(self._took["on"]))


def run(directory: Path, seed: int) -> Loop:
    """Run the training loop of one rank on SoftMax in this process; recording stays on afterwards."""
    recorder = tracing.start(directory, "chief")
    if recorder is None:
        raise ValueError(f"{tracing.SWITCH} is off")
    main = files.load("softmax-mnist")
    dataset = dataset_of(main)
    layout = layout_of(dataset)
    block, test = (_records(dataset, "train", main.batch_size), _records(dataset, "test", dataset.test_size))
    (directory / "test").write_bytes(test)
    steps = WARM_UP_STEPS + 2 * PAIRS * BLOCK_STEPS + 1  # the last step ends the last block
    samples = steps * main.batch_size
    main = replace(main, workers=1, epochs=1, train_samples=samples, checkpoint_every_steps=0)
    job = Job.of(
        main,
        library="",
        image_shape=layout.shape,
        dtype=layout.dtype,
        classes=layout.classes,
        test_path=f"{directory}/test",
        run_dir=str(directory),
        **dict.fromkeys(("fs_uri", "webhdfs_url", "user", "train_dir", "spans_dir"), ""),
    )
    feed = AlternatingFeed(block, recorder, seed)
    trainer.main(job, Node(0, ("",), feed))
    return feed.loop()


def _records(dataset: Dataset, split: Split, samples: int) -> bytes:
    ((images, labels),) = dataset.chunks(split, range(samples), samples)
    return tfrecord.encode(images, labels, layout_of(dataset))


def measure(seed: int) -> Loop | None:
    """Return the loop of a new process; None if it fails or exceeds `TIMEOUT_S`."""
    environment = {name: value for name, value in os.environ.items() if name != tracing.SWITCH}
    with tempfile.TemporaryDirectory(prefix="step-loop-") as directory:
        command = [sys.executable, "-m", __name__, directory, str(seed)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=environment
            )
        except subprocess.SubprocessError:
            return None
    return Loop(**json.loads(done.stdout.splitlines()[-1]))


def processes(seed: int) -> list[Loop]:
    """Return the loops of `PROCESSES` processes, without failed processes."""
    return [loop for number in range(PROCESSES) if (loop := measure(PROCESSES * seed + number))]


if __name__ == "__main__":
    print(json.dumps(asdict(run(Path(sys.argv[1]), int(sys.argv[2])))))

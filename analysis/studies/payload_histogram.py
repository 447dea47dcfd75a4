"""Sizes of what a training step exchanges, in the size classes of TF-gRPC-Bench.

    python analysis payload_histogram [RUN...] [--model NAME...] [--ranks N]

    gradients   one buffer per tensor, as in the paper's iovecs; derived from the model
    tf-ring     messages of TensorFlow's ring all-reduce; derived, because they are sent inside the compiled step
    recorded    transfers of a run with another exchange

The paper (arXiv 1804.01138) shows the distribution of its iovec buffers without values. Its classes are small, below 1
KB; medium, below 1 MB; and large, up to 10 MB. KB and MB are taken as 2^10 and 2^20 bytes.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.studies.pictures import LINES
from analysis.studies.script import Shown
from dlobd.axes import MODELS
from dlobd.bundle.store import Bundle
from dlobd.micro import recorded
from dlobd.micro.payload import KIB, MIB
from dlobd.micro.request import gradient_shapes
from dlobd.report.text import percentage
from dlobd.schema import Experiment

CLASSES = {"small": KIB, "medium": MIB, "large": 10 * MIB + 1, "larger": math.inf}
"""Smallest size that is above each class, in bytes."""

MOST_CHUNK_BYTES = 4 * MIB  # kMaxChunkSizeBytes of TensorFlow's ring_alg.cc
PARTS = 2  # kMaxSubdivsPerDeviceDefault
ALIGNED_FLOATS = 16  # EIGEN_MAX_ALIGN_BYTES (64) of TensorFlow's packages

Sizes = Mapping[int, float]
"""Number of messages or buffers in one exchange, by their size in bytes."""


@dataclass(frozen=True, slots=True)
class Payload:
    """Sizes of one exchange. `origin`: derived or recorded."""

    name: str
    origin: str
    sizes: Sizes

    def shares(self, of_bytes: bool = False) -> dict[str, float]:
        """Return the share of the messages, or of their bytes, in each class."""
        shares = dict.fromkeys(CLASSES, 0.0)
        for size, count in self.sizes.items():
            name = next(name for name, end in CLASSES.items() if size < end)
            shares[name] += count * size if of_bytes else count
        total = sum(shares.values())
        return {name: value / total for name, value in shares.items()}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments for runs and models."""
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="bundle of a run")
    parser.add_argument("--model", action="append", metavar="NAME", help="model; repeatable. Default: all")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="ranks of the derived messages")


def report(asked: Namespace) -> Shown:
    """Return the table of all models and runs, and its picture.

    Raises:
        UsageError: a model is unknown, or a run has no exchange that was recorded or can be derived.
        BundleError: a run cannot be read.
    """
    found = [
        one for name in asked.model or MODELS.built_in() for one in derived(name, gradient_shapes(name), asked.ranks)
    ]
    found += [of_run(path) for path in asked.runs]
    return (table(found), "Shares of the messages, or buffers, of one exchange.\n"), _picture(found)


def derived(model: str, shapes: Sequence[Sequence[int]], ranks: int) -> list[Payload]:
    """Return the buffers of a model's gradients, and the messages of TensorFlow's ring."""
    floats = [math.prod(shape) for shape in shapes]
    ring = tf_ring(sum(floats), ranks)
    return [
        Payload(f"{model}, gradients", "derived", Counter(4 * count for count in floats)),
        Payload(f"{model}, tf-ring, {ranks} ranks", "derived", ring),
    ]


def of_run(path: Path) -> Payload:
    """Return the recorded transfers of a run, or the messages that its ring of TensorFlow sent."""
    chosen = Bundle(path).read().configuration
    if isinstance(chosen, Experiment) and chosen.exchange == "tf-ring":
        return derived(chosen.model, gradient_shapes(chosen.model, chosen), chosen.workers)[1]
    found = recorded.exchanges(path)
    return Payload(found.title, "recorded", recorded.sizes(found))


def tf_ring(floats: int, ranks: int) -> Sizes:
    """Return the messages of all ranks in an all-reduce by TensorFlow's ring.

    TensorFlow concatenates the gradients of a step, because `bytes_per_pack` is 0, and cuts them into aligned chunks,
    one per rank. Chunks above 4 MiB are halved, once. Each chunk travels around the ring twice; an empty one does not
    (tensorflow/core/common_runtime/ring_alg.cc, base_collective_executor.cc).
    """
    parts = PARTS if 4 * floats // ranks > MOST_CHUNK_BYTES else 1
    chunk = math.ceil(math.ceil(floats / (ranks * parts)) / ALIGNED_FLOATS) * ALIGNED_FLOATS
    sizes = [4 * min(chunk, floats - start) for start in range(0, floats, chunk)]
    return {size: count * 2 * (ranks - 1) for size, count in Counter(sizes).items()}


def table(found: Sequence[Payload]) -> str:
    """Return the text of the shares by class."""
    rows = []
    for one in found:
        shares = {name: percentage(share, 1) for name, share in one.shares().items()}
        count, size = sum(one.sizes.values()), sum(size * count for size, count in one.sizes.items())
        rows.append(
            {"": one.name, "origin": one.origin, "messages": f"{count:,.4g}", "MB": f"{size / 1e6:.4g}", **shares}
        )
    return pd.DataFrame(rows).to_string(index=False) + "\n"


def _picture(found: Sequence[Payload]) -> Figure:
    figure = Figure(figsize=(11, 1.5 + 0.25 * len(found)), layout="constrained")
    for axes, of_bytes in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
        left = np.zeros(len(found))
        for name, (_, _, shade) in zip(CLASSES, LINES, strict=False):
            share = np.array([100 * one.shares(of_bytes)[name] for one in found])
            axes.barh([f"{one.name} ({one.origin})" for one in found], share, left=left, color=shade, label=name)
            left += share
        axes.set_xlabel(f"share of the {'bytes' if of_bytes else 'messages or buffers'}, %")
    figure.axes[0].invert_yaxis()
    figure.axes[1].legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure

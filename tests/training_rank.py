"""One rank that trains, as a process of its own: the same steps once for each exchange that it is told, in this order.

    python tests/training_rank.py RANK PLACES < [[exchange, channel, library, servers], ...]

Prints for each of them a line of JSON: the losses of its steps, and what its exchange says of the transport. PLACES has
an key-value store for each, because ranks meet in it once. Real TensorFlow, and dlobd's own step.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import EXCHANGES
from dlobd.channel import Channel
from dlobd.job.launchers.imports import import_tensorflow
from dlobd.job.models import mlp
from dlobd.job.training.optimisation import Momentum, Sgd, constant, softmax_cross_entropy
from dlobd.job.training.step import Step, Workload
from dlobd.network.exchanges.base import Exchange, Settings
from dlobd.network.exchanges.outside_step import RENDEZVOUS

STEPS, BATCH, SHAPE, CLASSES = 8, 12, (12, 12, 1), 5
"""20,229 parameters: gradients of 81 KB, which travel in several buffers and messages."""

FUSION_BYTES = 1 << 15


def batches(rank: int, ranks: int) -> list[tuple[Any, Any]]:
    """Of one rank, of so many that share the same samples; labels follow from the images."""
    random = np.random.default_rng(1)
    found = []
    for _ in range(STEPS):
        images = random.normal(0, 1, (BATCH * 12, *SHAPE)).astype(np.float32)  # for 1, 2, 3 and 4 ranks
        labels = np.argmax(images.reshape(len(images), -1)[:, :CLASSES], axis=1).astype(np.int32)
        found.append((images[rank::ranks], labels[rank::ranks]))
    return found


def train(tf: Any, exchange: Exchange, peers: list[str], rank: int) -> list[float]:
    job: Any = SimpleNamespace(
        model="mlp",
        workers=len(peers),
        steps=STEPS,
        steps_per_epoch=STEPS,
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=0.0,
        warmup_epochs=0.0,
        max_seconds=0,
    )
    exchange.join(tf, peers, rank)
    with exchange.scope():
        model = mlp.build(SHAPE, CLASSES, 7)
        make = Momentum if exchange.synchronous else Sgd
        optimiser = make(tf, model.trainable_variables, job)
        step = Step(tf, job, Workload(model, softmax_cross_entropy, optimiser, constant), exchange)
    given = [tuple(map(tf.constant, batch)) for batch in batches(rank, len(peers))]
    losses = [step(k, *batch)[0] for k, batch in enumerate(given)]
    exchange.close()
    return losses


def main() -> None:
    rank, places = int(sys.argv[1]), json.loads(sys.argv[2])
    told: list[dict[str, Any]] = []
    instant = tracing.instant

    def heard(name: str, *arguments: Any, **attrs: Any) -> None:
        if name == kinds.TRANSPORT:
            told.append(attrs)
        instant(name, *arguments, **attrs)

    tracing.instant = heard  # type: ignore[assignment]
    import_tensorflow()
    import tensorflow as tf

    for (name, channel, library, servers), place in zip(json.loads(sys.stdin.read()), places, strict=True):
        peers = place["peers"]
        exchange: Exchange = EXCHANGES.get(name)(Settings(Channel.parse(channel), library, FUSION_BYTES, servers))
        os.environ |= {RENDEZVOUS: json.dumps(place), **exchange.environment(peers, rank)}
        losses = train(tf, exchange, peers, rank)
        print(json.dumps({"losses": losses, "transport": told.pop() if told else None}), flush=True)


if __name__ == "__main__":
    main()

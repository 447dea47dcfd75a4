"""One rank: reads top to bottom as what a synchronous data-parallel trainer does.

    import TensorFlow -> join the other ranks -> build -> steps -> (chief) save, read back, evaluate -> done-marker

Every step is a collective of all ranks, and recorded as such (`step`), which is how the attribution knows that a rank
waited for a slower one.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import EXCHANGES, LOSSES, OPTIMISERS, SCHEDULES
from dlobd.channel import Channel
from dlobd.job.description import Job, Markers
from dlobd.job.launchers.base import Node
from dlobd.job.launchers.framework import import_tensorflow
from dlobd.job.training import machine, storing
from dlobd.job.training.agreement import Agreement
from dlobd.job.training.deadline import Deadlines
from dlobd.job.training.evaluation import evaluate
from dlobd.job.training.inputs import batches
from dlobd.job.training.loop import Loop
from dlobd.job.training.step import Step
from dlobd.job.training.update import Workload
from dlobd.network.exchanges.base import Exchange, Settings

_STACK = (
    "Graph execution error",
    "Detected at node",
    "at org.",
    "at java",
    'File "',
    "[Previous line repeated",
    "[[{{node",
)
"""How the lines begin with which TensorFlow tells where in the graph an error arose, and Java where in its code."""


def main(job: Job, node: Node) -> None:
    """Trains as `node.rank`; leaves a done-marker, or a failure marker with the cause in one line."""
    markers = Markers(job)
    who = f"rank {node.rank} ({node.role})"

    def fail(cause: str) -> None:
        tracing.instant(kinds.RANK_FAILED, cause=f"{who}: {cause}")
        tracing.flush()  # HDFS may not answer any more
        markers.report_failure(f"{who}: {cause}")

    def give_up(cause: str) -> NoReturn:
        print(f"dlobd: {who}: {cause}", file=sys.stderr, flush=True)
        fail(cause)
        os._exit(1)  # the main thread is where no exception reaches it

    try:
        with tracing.span(kinds.TRAINER):
            result = _train(job, node, Deadlines(give_up))
        markers.report_done(node.rank, result)
    except FloatingPointError as error:  # nothing is broken but the numbers
        tracing.instant(kinds.DIVERGED)
        fail(str(error))
        raise
    except BaseException as error:
        fail(f"{type(error).__name__}: {_words(error)}")
        raise


def _words(error: BaseException) -> str:
    """What an error says, without the stack that TensorFlow or HDFS puts into its message."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_STACK))


def _train(job: Job, node: Node, deadlines: Deadlines) -> dict[str, Any]:
    import_tensorflow()
    import tensorflow as tf

    tracing.instant(kinds.TENSORFLOW_IMPORTED, version=tf.__version__, path=tf.__file__)

    machine.choose(tf, job)
    settings = Settings(Channel.parse(job.channel), job.library, job.exchange_fusion_mb << 20, job.exchange_servers)
    exchange: Exchange = EXCHANGES.get(job.exchange)(settings)
    os.environ.update(node.environment)
    with tracing.span(kinds.JOIN_RANKS):
        exchange.join(tf, node.peers, node.rank)
    tracing.instant(kinds.RANKS_JOINED)
    machine_used = machine.used(tf, job)

    with tracing.span(kinds.BUILD):
        tf.random.set_seed(job.seed)
        with exchange.scope():
            model = job.build_model()
            optimiser = OPTIMISERS.get(job.optimiser)(tf, model.trainable_variables, job)
            workload = Workload(model, LOSSES.get(job.loss), optimiser, SCHEDULES.get(job.schedule))
            step = Step(tf, job, workload, exchange)
        agreement = Agreement(tf, job, exchange)

    storage = job.storage()
    loop = Loop(tf, job, node, step, agreement, model, storage)
    result = loop.run(batches(tf, job, node, deadlines)) | {"machine": machine_used}
    exchange.close()  # while all ranks are here: the others do not wait for what the chief does next
    if node.feed and result["steps"] < job.fed_epochs * job.steps_per_epoch:
        node.feed.stop()
    if node.rank == 0:
        storing.save(tf, job, model, storage)
        tracing.instant(kinds.SAVED)
        result["test"] = evaluate(tf, job, storage)
        tracing.instant(kinds.EVALUATED)
    return result

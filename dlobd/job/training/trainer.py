"""Trains as one rank, data-parallel with the other ranks.

    import TensorFlow -> join the other ranks -> build -> steps -> (chief) save, read back, evaluate -> done-marker

With a synchronous exchange, every step is recorded as a collective of all ranks. From it, the attribution derives the
waits of a rank for a slower rank.
"""

import os
import re
import sys
from typing import Any, NoReturn

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.axes import EXCHANGES, LOSSES, OPTIMISERS, SCHEDULES
from dlobd.job import device_config
from dlobd.job.description import Job, Markers
from dlobd.job.launchers.base import Node, role_of
from dlobd.job.launchers.imports import import_tensorflow
from dlobd.job.training import checkpointing
from dlobd.job.training.evaluation import evaluate
from dlobd.job.training.inputs import Deadlines, batches
from dlobd.job.training.loop import Loop, StopVote
from dlobd.job.training.step import Step, Workload
from dlobd.network.exchanges.base import Exchange, Settings

_STACK = re.compile(
    r'Graph execution error|Detected at node|at org\.|at java|File "|\[Previous line repeated|\[\[\{\{node'
)
"""Beginnings of message lines that only locate an error in TensorFlow's graph, or in Python or Java code."""


def main(job: Job, node: Node) -> None:
    """Train as `node.rank`; write a done-marker, or a failure marker with the cause in one line."""
    markers = Markers(job)
    role, _ = role_of(node.rank)
    name = f"rank {node.rank} ({role})"

    def fail(cause: str) -> None:
        tracing.instant(kinds.RANK_FAILED, cause=f"{name}: {cause}")
        tracing.flush()  # before a request to HDFS, which may hang
        markers.report_failure(f"{name}: {cause}")

    def give_up(cause: str) -> NoReturn:
        print(f"dlobd: {name}: {cause}", file=sys.stderr, flush=True)
        fail(cause)
        os._exit(1)  # exit, because no exception can reach the main thread

    try:
        with tracing.span(kinds.TRAINER):
            result = _train(job, node, Deadlines(give_up))
        markers.report_done(node.rank, result)
    except FloatingPointError as error:  # the loss diverged; no component failed
        tracing.instant(kinds.DIVERGED)
        fail(str(error))
        raise
    except BaseException as error:
        fail(f"{type(error).__name__}: {_message(error)}")
        raise


def _message(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not _STACK.match(line))


def _train(job: Job, node: Node, deadlines: Deadlines) -> dict[str, Any]:
    import_tensorflow()
    import tensorflow as tf

    tracing.instant(kinds.TENSORFLOW_IMPORTED, version=tf.__version__, path=tf.__file__)

    device_config.configure(tf, job)
    settings = Settings(job.channel, job.library, job.exchange_fusion_mb << 20, job.exchange_servers)
    exchange: Exchange = EXCHANGES.get(job.exchange)(settings)
    os.environ.update(node.environment)
    with tracing.span(kinds.JOIN_RANKS):
        exchange.join(tf, node.peers, node.rank)
    tracing.instant(kinds.RANKS_JOINED)
    settings_used = device_config.effective(tf, job)

    with tracing.span(kinds.BUILD):
        tf.random.set_seed(job.seed)
        with exchange.scope():
            model = job.build_model()
            optimiser = OPTIMISERS.get(job.optimiser)(tf, model.trainable_variables, job)
            workload = Workload(model, LOSSES.get(job.loss), optimiser, SCHEDULES.get(job.schedule))
            step = Step(tf, job, workload, exchange)
        stop_vote = StopVote(tf, job, exchange)

    storage = job.storage()
    loop = Loop(tf, job, node, step, stop_vote, model, storage)
    result = loop.run(batches(tf, job, node, deadlines)) | {"machine": settings_used}
    exchange.close()  # all ranks close the exchange before the chief saves, so that they do not wait for the chief
    if node.feed and result["steps"] < job.fed_epochs * job.steps_per_epoch:
        node.feed.stop()
    if node.rank == 0:
        checkpointing.save(tf, job, model, storage)
        tracing.instant(kinds.SAVED)
        result["test"] = evaluate(tf, job, storage)
        tracing.instant(kinds.EVALUATED)
    return result

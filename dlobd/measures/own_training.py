"""Computes steps, input waits and epochs of the main functions of a user's script. Pure."""

from dlobd import spans as kinds
from dlobd.columns import NONE
from dlobd.evidence import own_steps
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import TRAINING
from dlobd.measures import statistics
from dlobd.record.run import Epoch, RankSteps
from dlobd.timeline.ranks import Rank, ranks


def rank_steps(evidence: Evidence) -> tuple[RankSteps, ...]:
    """Return the steps of each node that trains, by role, index and time."""
    return tuple(map(_steps, _training(evidence)))


def _training(evidence: Evidence) -> list[Rank]:
    found = [rank for rank in ranks(evidence) if rank.role in TRAINING]
    return sorted(found, key=lambda rank: (rank.role, rank.index, rank.start_ns))


def _steps(rank: Rank) -> RankSteps:
    steps = own_steps.count(rank.spans, observed=rank.process.instant(kinds.STEPS_UNKNOWN) is None)
    first_ns, ordered = own_steps.lengths_ns(rank.spans) if steps else (None, [])
    return RankSteps(
        role=rank.role,
        index=rank.index,
        steps=steps,
        step_p50_ns=statistics.element(ordered, 0.5),
        step_p99_ns=statistics.quantile(ordered, 0.99),
        step_max_ns=ordered[-1] if ordered else None,
        first_step_ns=first_ns,
        feed_wait_ns=_wait_ns(rank),
        main_ns=rank.main.end_ns - rank.main.start_ns if rank.main and not rank.main.truncated else None,
    )


def _wait_ns(rank: Rank) -> int | None:
    """Return the time in waits for input; None if steps take their input themselves, as in Keras's fit."""
    waits, gets = rank.named(kinds.INPUT_WAIT), rank.named(kinds.GET)
    if waits:  # tf.data may get its rows from DataFeed in another thread, while the main thread waits for tf.data
        gets = gets.where(gets.in_main_thread)
    steps = rank.spans.where(rank.spans.is_step)
    if steps and (not (waits or gets) or (steps.values("function", NONE) == own_steps.KERAS).any()):
        return None
    return int(waits.ns.sum() + gets.ns.sum())


def epochs(evidence: Evidence) -> tuple[Epoch, ...]:
    """Return the epochs of the chief, or of the first worker of a cluster without one."""
    rank = next(iter(_training(evidence)), None)
    if rank is None:
        return ()
    instants = [at for at in rank.process.instants if rank.start_ns <= at.at_ns <= rank.end_ns]
    found, tests_ = [], rank.named(kinds.EVALUATE)
    for done in (at for at in instants if at.name == kinds.OWN_EPOCH_DONE):
        begin_ns = done.at_ns - done.attrs["ns"]
        tests = tests_.where((begin_ns <= tests_.start_ns) & (tests_.end_ns <= done.at_ns))
        # Keras validates at the end of an epoch
        evaluation_ns = int(tests.ns.sum()) if tests else None
        end_ns = tests[0].start_ns if tests else done.at_ns
        found.append(
            Epoch(done.attrs["epoch"], end_ns, end_ns - begin_ns, done.attrs.get("loss"), None, None, evaluation_ns)
        )
    return tuple(found)

"""Calls of workers to parameter servers: each worker calls each server, one call at a time per server.

A call is a message and an answer of ANSWER_BYTES. All workers start a batch together, after they have met, so that a
batch has the load of all workers. A server keeps the messages of a batch, and verifies them after its last answer.

A server has a thread per worker, and its resource use is that of the process. It is measured once per batch: from the
time when the last thread is ready, before any worker begins, to the last answer of the last thread. Only then do the
threads verify, so that verification is no part of it, and does not compete with the calls of slower workers.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from threading import Barrier
from typing import TypeVar

from dlobd.micro.loops import Link, Samples
from dlobd.micro.messages import Carrier, Content, Message
from dlobd.micro.plan import MOST_BYTES, MOST_MESSAGES, Point

T = TypeVar("T")

Meet = Callable[[str, str], list[str]]
"""Publish a value under a name among the workers; return the values of all workers."""


def calls_of_a_batch(point: Point, workers: int) -> int:
    """Return the calls of a worker to a server in a batch: a server keeps the messages of all workers."""
    return max(2, min(MOST_MESSAGES, 4 * MOST_BYTES // max(1, point.payload.bytes * workers)))


def measure(links: Sequence[Link], point: Point, workers: int, meet: Meet) -> Samples:
    """Run a worker."""
    samples = Samples()
    count, begin_s, batch = calls_of_a_batch(point, workers), time.monotonic(), 0
    recorded_s = 0.0
    while True:
        # all workers follow the first: whether the batch is recorded, and whether it is the last
        passed_s = time.monotonic() - begin_s
        recorded = passed_s >= point.warm_up_s
        ends = recorded and bool(recorded_s) and recorded_s >= point.seconds
        state = meet(f"batch {batch}", "end" if ends else "record" if recorded else "warm up")[0]
        if state == "end":
            break
        for link in links:
            link.order(count, state == "record")
        meet(f"begin {batch}", "")
        start_ns = time.perf_counter_ns()
        with links[0].metered(count * len(links), state == "record"):
            times_ns = _together([partial(_called, link, point, count) for link in links])
        end_ns = time.perf_counter_ns()
        samples.bad += sum(link.answered() for link in links)
        if state == "record":
            recorded_s += (end_ns - start_ns) / 1e9
            samples.times_ns += [time_ns for times in times_ns for time_ns in times]
            samples.batches_ns.append(end_ns - start_ns)
        batch += 1
    for link in links:
        link.order(0)
    return samples


def _called(link: Link, point: Point, count: int) -> list[int]:
    carrier = Carrier(link.connection, point.payload, link.deadline_s)
    content, message = Content(point.payload), Message(point.payload)
    content.write(message, 0)
    times_ns = []
    for number in range(count):
        content.number(message, number)
        start_ns = time.perf_counter_ns()
        carrier.send(message)
        link.answered()
        times_ns.append(time.perf_counter_ns() - start_ns)
    return times_ns


def serve(links: Sequence[Link], point: Point) -> Samples:
    """Run a server with a thread per worker. It has no times."""
    workers, meter = len(links), links[0].meter
    count = calls_of_a_batch(point, workers)
    ready = Barrier(workers, meter.start)
    served = {True: Barrier(workers, partial(meter.stop, workers * count)), False: Barrier(workers)}
    return Samples(sum(_together([partial(_served, link, point, count, ready, served) for link in links])))


def _served(link: Link, point: Point, count: int, ready: Barrier, served: Mapping[bool, Barrier]) -> int:
    carrier, content = Carrier(link.connection, point.payload, link.deadline_s), Content(point.payload)
    slots = [Message(point.payload) for _ in range(count)]
    bad = 0
    for _, recorded in link.orders():
        ready.wait()
        link.answer()
        for slot in slots:
            carrier.recv(slot)
            link.answer()
        served[recorded].wait()
        wrong = sum(content.wrong(slot, number) for number, slot in enumerate(slots))
        bad += wrong
        link.answer(wrong)
    return bad


def _together(works: Sequence[Callable[[], T]]) -> list[T]:
    """Run functions in threads; return their results, or raise the first error at once."""
    executor = ThreadPoolExecutor(len(works))
    futures = [executor.submit(work) for work in works]
    executor.shutdown(wait=False)
    wait(futures, return_when=FIRST_EXCEPTION)
    for future in futures:
        if future.done() and (error := future.exception()):
            raise error
    return [future.result() for future in futures]

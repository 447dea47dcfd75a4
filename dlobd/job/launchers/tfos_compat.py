"""Adapts TensorFlowOnSpark 2.2.5 to current software, and records its spans. Installed before its first import.

Changes on the driver and on every executor:
    pkg_resources       replaced, for TensorFlowOnSpark's modules only, if setuptools lacks it
    TensorFlow          imported at first use, in the trainer, instead of on the driver and in every Python worker
    host                the advertised address is that of the channel's interface, or TFOS_BIND_IP, on which the driver
                        also listens; else the default route's address, as in the original
    rdma=True           refused: TensorFlow 2 has no RDMA transport, and a silent fallback would be wrong
    trainer process     its death is reported; the original waits for its queue until the feed times out
    waits               for reservations (driver and executors) and for the feed's join end without a poll of 1 s; all
                        timeouts and error checks are unchanged
    queues              queue.Queue in the manager's process; the original's multiprocessing queues pass each item
                        through a pipe from this process to itself
All other changes only record spans around the original calls. Other polls and sleeps are unchanged, as named spans.
"""

import functools
import importlib.metadata
import importlib.util
import multiprocessing
import os
import queue
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.addresses import BIND_IP, rank_address
from dlobd.job.launchers.failure import MemoryGroup, exit_status
from dlobd.job.launchers.imports import on_import
from dlobd.spans import SpanKind

STOCK_POLL_NS = 1_000_000_000
"""Sleep of TensorFlowOnSpark's polls: server and client in reservation.py, and the feed's join in TFSparkNode.py."""

Function = Callable[..., Any]  # function of PySpark, TensorFlowOnSpark or the user
NO_STATUS: Mapping[str, object] = MappingProxyType({})

POLL_S = 0.05  # interval between two checks of the reservations


def install() -> None:
    """Install the changes in this process. A second call has no effect."""
    if "tensorflowonspark.TFSparkNode" in sys.modules:
        return
    provide_pkg_resources()
    _import_tensorflow_late()
    from tensorflowonspark import TFManager, TFNode, TFSparkNode, reservation, util

    _choose_host(util, reservation)
    replace(TFNode, "start_cluster_server")(_refuse_rdma)
    TFManager.JoinableQueue = queue.Queue  # only threads of the manager's process use it; other processes have a proxy
    record_calls(TFManager, "start", kinds.TFMANAGER_START)
    record_calls(reservation.Client, "register", kinds.REGISTER_RESERVATION)
    wait = kinds.COMPAT_RESERVATION_POLL.wait(int(POLL_S * 1e9))
    reservation.Client.await_reservations = _await_at_client
    record_calls(reservation.Client, "await_reservations", kinds.AWAIT_RESERVATIONS, wait)
    replace(reservation.Server, "await_reservations")(name_registered)
    replace(reservation.Server, "await_reservations")(_await_at_server)
    record_calls(reservation.Server, "await_reservations", kinds.AWAIT_RESERVATIONS, wait)
    record_calls(TFSparkNode, "_get_manager", kinds.CONNECT_TO_TFMANAGER)
    TFSparkNode.multiprocessing = Multiprocessing
    TFSparkNode.Thread = JoinThread
    TFSparkNode.time = JoinTime


def provide_pkg_resources() -> None:
    """Replace pkg_resources for TensorFlowOnSpark's modules if setuptools is missing, or is version 82 or later."""
    for name in ("TFNode", "TFSparkNode", "pipeline"):
        on_import(f"tensorflowonspark.{name}", None, around=_with_pkg_resources)


@contextmanager
def _with_pkg_resources() -> Iterator[None]:
    missing = not sys.modules.get("pkg_resources") and importlib.util.find_spec("pkg_resources") is None
    if missing:
        stub = types.ModuleType("pkg_resources")
        stub.DistributionNotFound = importlib.metadata.PackageNotFoundError  # type: ignore[attr-defined]
        stub.get_distribution = importlib.metadata.distribution  # type: ignore[attr-defined]
        sys.modules["pkg_resources"] = stub
    try:
        yield
    finally:
        if missing:  # for all other modules it is as absent as without dlobd
            sys.modules.pop("pkg_resources", None)


def _import_tensorflow_late() -> None:
    """Replace tensorflowonspark.compat, which imports TensorFlow in every process; the import takes seconds."""
    late = types.ModuleType("tensorflowonspark.compat")

    def is_gpu_available() -> bool:
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))

    def disable_auto_shard(options: Any) -> None:
        import tensorflow as tf

        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF

    def export_saved_model(model: Any, export_dir: str, is_chief: bool = False) -> None:
        model.save(export_dir if is_chief else "worker_model")

    for function in (is_gpu_available, disable_auto_shard, export_saved_model):
        setattr(late, function.__name__, function)
    sys.modules["tensorflowonspark.compat"] = late


def _choose_host(util: Any, reservation: Any) -> None:
    address = os.environ.get(BIND_IP)
    routed = util.get_ip_address
    util.get_ip_address = lambda: rank_address() or routed()
    if not address:
        return

    def start_listening_socket(server: Any) -> socket.socket:
        # the original listens on every interface and unpickles all messages; the replacement listens on one address
        for port in server.get_server_ports():
            with suppress(OSError):  # the port is taken
                return socket.create_server((address, port), backlog=64)
        raise OSError(f"no free port for the reservation server on {address}")

    reservation.Server.start_listening_socket = start_listening_socket


def _await_at_client(client: Any) -> object:
    """Replace reservation.Client.await_reservations: poll until all nodes are registered, then return them."""
    while not client._request("QUERY"):
        time.sleep(POLL_S)
    return client.get_reservations()


def _await_at_server(
    original: Function, server: Any, sc: object, status: Mapping[str, object] = NO_STATUS, timeout: float = 600
) -> object:
    """Wait until reservation.Server.await_reservations can return or fail without a sleep, and call it."""
    deadline = time.monotonic() + timeout
    while not server.reservations.done() and "error" not in status and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return original(server, sc, status, max(0.0, deadline - time.monotonic()))


_joining = threading.local()


class JoinThread(threading.Thread):
    """Replacement of `Thread` in TFSparkNode. A feed task starts such a thread, which ends when its queue is empty."""

    def start(self) -> None:
        super().start()
        _joining.thread = self


class JoinTime:
    """Replacement of the module `time` in TFSparkNode. A class, because it must pickle by reference."""

    @staticmethod
    def sleep(seconds: float) -> None:
        """Sleep for at most `seconds`, until the last `JoinThread` that this thread started ends."""
        thread = getattr(_joining, "thread", None)
        if thread is not None and thread.is_alive():
            thread.join(seconds)
        else:
            time.sleep(seconds)


def _refuse_rdma(original: Function, ctx: object, num_gpus: int = 1, rdma: bool = False) -> object:
    if rdma:
        raise ValueError("rdma=True: TensorFlow 2 has no RDMA transport; choose a channel of dlobd instead")
    return original(ctx, num_gpus, rdma)


class NotRegistered(Exception):
    """Timeout of the reservation server.

    Args:
        nodes: number of nodes that were asked for.
        executors: number of registered executors; None if Spark does not answer.
        registered: role and index of the registered nodes.
    """

    def __init__(self, nodes: int, executors: int | None, registered: set[tuple[str, int]]) -> None:
        found = f"{len(registered)} nodes registered with TensorFlowOnSpark"
        if executors is not None and executors < nodes:
            found = f"{executors} executors registered"
        super().__init__(f"{nodes} nodes were asked for, {found}")
        self.registered = registered


def name_registered(original: Function, server: Any, sc: Any, *args: object, **kwargs: object) -> object:
    """Raise NotRegistered if TensorFlowOnSpark's wait for reservations fails."""
    try:
        return original(server, sc, *args, **kwargs)
    except Exception as error:
        nodes, executors = server.reservations.required, None
        registered = {(node["job_name"], node["task_index"]) for node in server.reservations.get()}
        with suppress(Exception):  # the JVM may have ended
            executors = int(sc._jsc.sc().getExecutorIds().size())
        tracing.instant(kinds.NODES_MISSING, nodes=nodes, registered=len(registered), executors=executors)
        raise NotRegistered(nodes, executors, registered) from error


def replace(owner: Any, name: str) -> Callable[[Function], Function]:
    """Return a decorator for a function that replaces an attribute, and receives the original as its first argument."""

    def decorate(function: Function) -> Function:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: object, **kwargs: object) -> object:
            return function(original, *args, **kwargs)

        setattr(owner, name, replacement)
        return function

    return decorate


def record_calls(owner: Any, name: str, kind: SpanKind, wait: dict[str, object] | None = None) -> None:
    """Record a span around each call of a third-party function."""

    @replace(owner, name)
    def recorded(original: Function, *args: object, **kwargs: object) -> object:
        with tracing.span(kind, wait):
            return original(*args, **kwargs)


class WatchedProcess(multiprocessing.Process):
    """Trainer process. The error queue and the job receive its death by a signal or with an exit code."""

    def start(self) -> None:
        """Fork the trainer, and watch it from a thread of the Python worker, which Spark keeps for reuse."""
        tf_args = self._args[0]  # type: ignore[attr-defined]  # multiprocessing deletes it in `start`
        with tracing.span(kinds.FORK_TRAINER) as span:
            super().start()
            span.note(pid=self.pid)
        memory = MemoryGroup.read()
        threading.Thread(target=self._watch, args=(tf_args, memory), name="dlobd-watch", daemon=True).start()

    def _watch(self, tf_args: object, memory: MemoryGroup) -> None:
        from tensorflowonspark import TFSparkNode

        self.join()
        deadline = time.monotonic() + 1
        while self.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.01)  # another joining thread has read the status from the kernel, but has not stored it yet
        if not self.exitcode:
            return
        cause = f"trainer process {self.pid} died: {exit_status(self.exitcode, memory)}"
        tracing.instant(kinds.TRAINER_DIED, cause=cause, pid=self.pid, code=self.exitcode)
        tracing.flush()
        with suppress(OSError, EOFError):  # the manager has ended too; Spark reports the loss of the executor
            TFSparkNode.TFSparkNode.mgr.get_queue("error").put(cause)
        markers = getattr(tf_args, "markers", None)
        if markers and self.exitcode < 0:
            markers.report_death(cause)
        elif markers:
            # only the first report counts: this report is ignored if the trainer has reported its own failure
            markers.report_failure(cause)


class Multiprocessing:
    """Replacement of the module `multiprocessing` in TFSparkNode. A class, because it must pickle by reference."""

    Process = WatchedProcess

"""Makes TensorFlowOnSpark 2.2.5 importable on current software, and measurable. Installed before its first import.

What it changes, on the driver and on every executor:
    pkg_resources       a stand-in where setuptools no longer brings it; TensorFlowOnSpark asks it for one version
    TensorFlow          imported when first used, in the trainer, instead of on the driver and in every Python worker
    host                the channel's interface, or TFOS_BIND_IP, names the address to advertise; the latter also where
                        the driver listens; else the default route's, as stock
    rdma=True           refused: TensorFlow 2 has no RDMA transport, and a silent fallback would be a lie
    trainer process     watched: one that is killed is reported; stock waits for its queue until the feed times out
    waits               end when what they wait for is there: the reservations at both ends (stock looks once a second)
                        and the feed's join (once a second); all their timeouts and error checks stay
    queues              those of the manager's process are of its threads; stock's are multiprocessing's, which pass
                        each item through a pipe from this process to itself
Everything else only records spans around the original calls. The other polls and sleeps stay, and are named.
"""

from __future__ import annotations

import functools
import importlib.metadata
import multiprocessing
import os
import queue
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.job.launchers.death import MemoryGroup, how
from dlobd.job.launchers.own_address import BIND_IP, own_address
from dlobd.spans import SpanKind

STOCK_POLL_NS = 1_000_000_000
"""TensorFlowOnSpark's own polls sleep 1 s: reservation.py at both ends, and the feed's join in TFSparkNode.py."""

POLL_S = 0.05
"""How often a wait for reservations looks here."""


def install() -> None:
    """Prepares this process. Harmless when called twice."""
    if "tensorflowonspark.TFSparkNode" in sys.modules:
        return
    provide_pkg_resources()
    _import_tensorflow_late()
    from tensorflowonspark import TFManager, TFNode, TFSparkNode, reservation, util

    _choose_host(util, reservation)
    TFNode.start_cluster_server = _refuse_rdma(TFNode.start_cluster_server)
    TFManager.JoinableQueue = queue.Queue  # only its server's threads use it: everybody else has a proxy
    TFManager.start = timed(kinds.TFMANAGER_START)(TFManager.start)
    reservation.Client.register = timed(kinds.REGISTER_RESERVATION)(reservation.Client.register)
    wait = kinds.COMPAT_RESERVATION_POLL.wait(int(POLL_S * 1e9))
    reservation.Client.await_reservations = timed(kinds.AWAIT_RESERVATIONS, wait)(_await_at_client)
    reservation.Server.await_reservations = timed(kinds.AWAIT_RESERVATIONS, wait)(
        _await_at_server(naming(reservation.Server.await_reservations))
    )
    TFSparkNode._get_manager = timed(kinds.CONNECT_TO_TFMANAGER)(TFSparkNode._get_manager)
    TFSparkNode.multiprocessing = Multiprocessing
    TFSparkNode.Thread = JoinThread
    TFSparkNode.time = JoinTime


def provide_pkg_resources() -> None:
    """Lets TensorFlowOnSpark be imported where setuptools 82 or later is installed, or none."""
    try:
        import pkg_resources  # noqa: F401
    except ImportError:
        stub = types.ModuleType("pkg_resources")
        stub.DistributionNotFound = importlib.metadata.PackageNotFoundError  # type: ignore[attr-defined]
        stub.get_distribution = importlib.metadata.distribution  # type: ignore[attr-defined]
        sys.modules["pkg_resources"] = stub


def _import_tensorflow_late() -> None:
    """Replaces tensorflowonspark.compat, whose first line imports TensorFlow (seconds, in every process)."""
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
    util.get_ip_address = lambda: own_address() or routed()
    if not address:
        return

    def start_listening_socket(server: Any) -> socket.socket:
        # the original listens on every interface and unpickles what arrives; this one only where it was told
        for port in server.get_server_ports():
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
            except OSError:
                listener.close()
                continue
            listener.listen(64)
            return listener
        raise OSError(f"no free port for the reservation server on {address}")

    reservation.Server.start_listening_socket = start_listening_socket


def _await_at_client(client: Any) -> Any:
    """reservation.Client.await_reservations: asks until all are there, then for what they are."""
    while not client._request("QUERY"):
        time.sleep(POLL_S)
    return client.get_reservations()


def _await_at_server(original: Callable[..., Any]) -> Callable[..., Any]:
    """reservation.Server.await_reservations, which is called once there is something to do: return, or fail."""

    def await_reservations(server: Any, sc: Any, status: Any = MappingProxyType({}), timeout: float = 600) -> Any:
        deadline = time.monotonic() + timeout
        while not server.reservations.done() and "error" not in status and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return original(server, sc, status, max(0.0, deadline - time.monotonic()))

    return await_reservations


_joining = threading.local()


class JoinThread(threading.Thread):
    """What TFSparkNode sees as `Thread`: a feed task starts one, which ends once its queue has been taken."""

    def start(self) -> None:
        """Starts it, and lets `JoinTime.sleep` know what its caller waits for."""
        super().start()
        _joining.thread = self


class JoinTime:
    """What TFSparkNode sees as the module `time`. A class, because it must pickle by reference."""

    @staticmethod
    def sleep(seconds: float) -> None:
        """Sleeps, but no longer than until the thread has ended that this thread started last."""
        thread = getattr(_joining, "thread", None)
        if thread is not None and thread.is_alive():
            thread.join(seconds)
        else:
            time.sleep(seconds)


def _refuse_rdma(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> Any:
        if rdma:
            raise ValueError("rdma=True: TensorFlow 2 has no RDMA transport; choose a channel of dlobd instead")
        return original(ctx, num_gpus, rdma)

    return start_cluster_server


class NotRegistered(Exception):
    """The reservation server has waited too long; `registered` are the (role, index) of those that came."""

    def __init__(self, registered: set[tuple[str, int]]) -> None:
        super().__init__(f"only {len(registered)} nodes registered with TensorFlowOnSpark")
        self.registered = registered


def naming(original: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlowOnSpark's wait for reservations, whose failure does not say whose is missing."""

    @functools.wraps(original)
    def await_reservations(server: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(server, *args, **kwargs)
        except Exception as error:
            registered = {(node["job_name"], node["task_index"]) for node in server.reservations.get()}
            raise NotRegistered(registered) from error

    return await_reservations


def timed(kind: SpanKind, wait: dict[str, Any] | None = None) -> Callable[[Any], Any]:
    """A decorator that records a span around a third party's function."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with tracing.span(kind, wait):
                return original(*args, **kwargs)

        return timed

    return wrap


class WatchedProcess(multiprocessing.Process):
    """A trainer process. Its death by a signal or an exit code reaches the error queue and the job.

    `args[0]` is what TFCluster.run was given as tf_args; its `markers`, if any, get the cause.
    """

    def start(self) -> None:
        """Forks the trainer, and watches it from a thread of the Python worker, which Spark keeps for reuse."""
        tf_args = self._args[0]  # type: ignore[attr-defined]  # multiprocessing forgets it once the child runs
        with tracing.span(kinds.FORK_TRAINER) as span:
            super().start()
            span.note(pid=self.pid)
        memory = MemoryGroup.read()
        threading.Thread(target=self._watch, args=(tf_args, memory), name="dlobd-watch", daemon=True).start()

    def _watch(self, tf_args: Any, memory: MemoryGroup) -> None:
        from tensorflowonspark import TFSparkNode

        self.join()
        deadline = time.monotonic() + 1
        while self.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.01)  # another thread that joins has taken its status from the kernel, and not yet noted it
        if not self.exitcode:
            return
        cause = f"trainer process {self.pid} died: {how(self.exitcode, memory)}"
        tracing.instant(kinds.TRAINER_DIED, cause=cause, pid=self.pid, code=self.exitcode)
        tracing.flush()
        try:
            TFSparkNode.TFSparkNode.mgr.get_queue("error").put(cause)
        except (OSError, EOFError):
            pass  # the manager is gone too; the executor's loss is reported by Spark itself
        markers = getattr(tf_args, "markers", None)
        if markers and self.exitcode < 0:
            markers.report_death(cause)
        elif markers:
            markers.report_failure(cause)  # the first one counts: a trainer that could speak has spoken


class Multiprocessing:
    """What TFSparkNode sees as the module `multiprocessing`. A class, because it must pickle by reference."""

    Process = WatchedProcess

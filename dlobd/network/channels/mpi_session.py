"""MPI in this process: begun over a PMI connection that is handed to it, with the transport that was asked for.

    transport     environment of MPICH, whose transport is UCX or libfabric (OFI)
    tcp, ipoib    MPICH_CH4_NETMOD=ucx UCX_TLS=tcp UCX_NET_DEVICES=INTERFACE
      on loopback MPICH_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=lo       UCX 1.20.1 finds "no route" over it
    rdma          MPICH_CH4_NETMOD=ucx UCX_TLS=rc UCX_NET_DEVICES=DEVICE:PORT
    shm           MPICH_CH4_NETMOD=ucx UCX_TLS=shm

No fallback is among the transports, so that MPI cannot begin where the one asked for is not there; MPIR_CVAR_NOLOCAL=1
keeps MPICH from using shared memory of its own between ranks of one host. A process can begin MPI once, and should be a
fresh one: the environment is set before MPI is loaded.

MPI neither authenticates nor encrypts, and does not say that a peer has died.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.base import ChannelError, DeadlinePassed
from dlobd.network.channels.environment import temporarily
from dlobd.network.channels.ip import resolved

TRANSPORTS = ("tcp", "ipoib", "rdma", "shm")

YIELD_S = 0.01
"""How long a rank that may sleep only yields its core between two looks: it is seldom woken late by more than this."""

SLEEP_S = 50e-6
"""Between two looks after that."""

BEGIN_S = 120.0
"""How long MPI may take to begin: longer than its ranks wait in a barrier of PMI, which then ends it."""

END_S = 30.0
"""How long it may take to end, once all ranks want it to."""

DRAIN_S = 0.05
"""How long a rank that ends looks for messages that are still under way to it."""

_BEGUN: list[MpiSession | None] = []
"""The session of this process, once it has one, or None where it could not begin: MPI begins once in a process."""

_BEGINNING = threading.Lock()
"""Guards `_BEGUN`."""


def environment(transport: str, device: str) -> dict[str, str]:
    """What MPICH, UCX and libfabric read of the environment.

    Args:
        device: an interface, its IPv4 address or its network, empty for loopback; or an RDMA device with its port, as
            in mlx5_0:1, which is port 1 if none is named.

    Raises:
        UsageError: MPI cannot carry the transport, or it needs a device.
        SetupError: the interface cannot be used.
    """
    if transport not in TRANSPORTS:
        raise UsageError(f"Library mpi cannot carry {transport!r}.", f"it carries {', '.join(TRANSPORTS)}")
    ucx = {"MPIR_CVAR_NOLOCAL": "1", "MPICH_CH4_NETMOD": "ucx", "UCX_LOG_FILE": "stderr"}
    if transport == "shm":
        return {**ucx, "UCX_TLS": "shm"}
    if transport == "rdma":
        if not device:
            raise UsageError("Channel rdma needs the name of its device.", "write it as in rdma@mlx5_0:1")
        return {**ucx, "UCX_TLS": "rc", "UCX_NET_DEVICES": device if ":" in device else f"{device}:1"}
    interface, _ = resolved(transport, device)
    if interface.type == interfaces.LOOPBACK:
        return {
            "MPIR_CVAR_NOLOCAL": "1",
            "MPICH_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            "FI_TCP_IFACE": interface.name,
        }
    return {**ucx, "UCX_TLS": "tcp", "UCX_NET_DEVICES": interface.name}


class MpiSession:
    """A session of MPI with all ranks of the job; `world` is their communicator, whose errors are exceptions.

    Ranks begin it together. Where one dies meanwhile, MPICH ends the process of the others. Where one dies later, an
    error says so, or MPICH crashes: 5.0 over UCX does (SIGSEGV) in about one of ten cases, as it sends to the rank that
    has died. Whose process ended first tells which rank it was.

    Args:
        preset: from `environment`; all ranks must have the same but for the device. It is set only while MPI begins.
        pmi: a connection that speaks PMI, MPI's from here on, until this process ends; None for one rank alone.

    Raises:
        SetupError: MPI has begun in this process before, is not MPICH, or cannot use the transport.
    """

    def __init__(self, preset: dict[str, str], pmi: socket.socket | None, rank: int = 0, size: int = 1) -> None:
        with _BEGINNING:
            if _BEGUN:
                raise SetupError("MPI has begun in this process before.", "start each rank in a fresh process")
            _BEGUN.append(None)
            self.preset = preset
            with temporarily(preset):
                try:
                    self.mpi = _loaded()
                except SetupError:
                    if pmi is not None:
                        pmi.close()
                    raise
                place = {"PMI_RANK": str(rank), "PMI_SIZE": str(size)}
                if pmi is not None:
                    place["PMI_FD"] = str(pmi.detach())
                with temporarily(place):
                    self._session, self.world = self._begin(preset)
            _BEGUN[0] = self

    @classmethod
    def of_this_process(cls, preset: dict[str, str]) -> MpiSession:
        """The one that has begun; else one of a single rank, which has nobody to meet.

        Raises:
            SetupError: MPI could not begin, or carries something else.
        """
        with _BEGINNING:
            begun = _BEGUN[0] if _BEGUN else cls
        if begun is cls:
            return cls(preset, None)
        if not isinstance(begun, MpiSession):
            raise SetupError("MPI could not begin in this process.", "start each rank in a fresh process")
        if begun.preset != preset:
            words = " ".join(f"{name}={value}" for name, value in begun.preset.items())
            raise SetupError(
                f"MPI carries something else in this process: {words}.", "a process has one transport of MPI"
            )
        return begun

    def _begin(self, preset: dict[str, str]) -> tuple[Any, Any]:
        mpi = self.mpi
        asked = mpi.Info.Create({"thread_level": "MPI_THREAD_MULTIPLE"})
        try:
            with _or_end(BEGIN_S):
                # a session says why a transport is not there, where MPI_Init would end the process; and of the world's
                # errors that are met in a later call all are exceptions, where some of a session's end the process
                session = mpi.Session.Init(asked, mpi.ERRORS_RETURN)
                mpi.Init_thread(mpi.THREAD_MULTIPLE)
                world = mpi.COMM_WORLD
        except mpi.Exception as error:
            words = " ".join(f"{name}={value}" for name, value in preset.items())
            raise SetupError(
                f"MPI cannot begin with {words}: {_line(error)}.", "look at its own lines above"
            ) from error
        finally:
            asked.Free()
        _unlink_segments()
        return session, world

    def sum(self, array: NDArray[Any]) -> Any:
        """Begins to sum an array in place, over all ranks; the request."""
        return self.world.Iallreduce(self.mpi.IN_PLACE, array, op=self.mpi.SUM)

    def all_reduce(self, array: NDArray[Any]) -> None:
        """MPI_Allreduce itself, which keeps its core busy and does not return if a rank has died: to compare with."""
        self.world.Allreduce(self.mpi.IN_PLACE, array, op=self.mpi.SUM)

    def barrier(self) -> Any:
        """Begins a barrier; the request."""
        return self.world.Ibarrier()

    def complete(
        self, begin: Callable[[], Any], deadline_s: float, what: str, sleep: bool, given_up: Callable[[], bool]
    ) -> None:
        """Begins a request, and returns once it is complete. MPI moves on only while it is asked, so that a rank that
        has bytes to move asks again and again, and yields its core in between.

        Each question may last for ever, as when libfabric sends to a rank that has died: who needs the deadline to hold
        asks in a thread that can be left behind. Python runs meanwhile.

        Args:
            deadline_s: a time of time.monotonic().
            what: what did not happen, for the message.
            sleep: where this rank only waits for others it may sleep, for SLEEP_S at a time.
            given_up: whether nobody waits for it any more.

        Raises:
            DeadlinePassed: it is not complete in time; MPI is of no use from then on.
            ChannelError: MPI has failed.
        """
        sleeps_from_s = time.monotonic() + YIELD_S if sleep else deadline_s
        try:
            request = begin()
            while not request.Test():
                now_s = time.monotonic()
                if now_s > deadline_s or given_up():
                    raise DeadlinePassed(f"{what} in time")
                if now_s < sleeps_from_s:
                    os.sched_yield()
                else:
                    time.sleep(SLEEP_S)
        except self.mpi.Exception as error:
            raise ChannelError(f"{what}: {_line(error)}") from error

    def finalise(self) -> None:
        """Ends MPI. All ranks call it, at about the same time; one that fails must not: it would wait for the others.

        Raises:
            ChannelError: MPI has failed.
        """
        try:
            with _or_end(END_S):
                self._drain()
                self.mpi.Finalize()
                self._session.Finalize()
        except self.mpi.Exception as error:
            raise ChannelError(f"MPI cannot end: {_line(error)}") from error

    def _drain(self) -> None:
        """What was sent and is not received any more, such as that a connection is closed: MPI does not end with it."""
        status, until_s = self.mpi.Status(), time.monotonic() + DRAIN_S
        while time.monotonic() < until_s:
            if not self.world.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
                os.sched_yield()
                continue
            try:
                self.world.Recv([bytearray(), 0, self.mpi.BYTE], status.source, status.tag)
            except self.mpi.Exception:
                pass  # it was cut to nothing
            until_s = time.monotonic() + DRAIN_S


def _unlink_segments() -> None:
    """The names of what MPICH has made to share with other ranks of this host, 1 MB a rank. Nobody else uses it, and it
    would stay for ever if this process were killed."""
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[-1] for line in maps}
    for name in mapped:
        if name.startswith("/dev/shm/mpich_shm_"):
            Path(name).unlink(missing_ok=True)


@contextmanager
def _or_end(within_s: float) -> Iterator[None]:
    """MPI's begin and end are calls that let no other thread of Python run: where one does not return, the process ends
    with status 1, and its stack is on stderr."""
    faulthandler.dump_traceback_later(within_s, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _loaded() -> Any:
    """mpi4py.MPI over MPICH, not begun.

    Raises:
        SetupError: it is not there, or another MPI, or begun.
    """
    try:
        for path in metadata.files("mpich") or ():
            if path.name == "libmpi.so.12":  # mpi4py looks below the interpreter's prefix only
                os.environ.setdefault("MPI4PY_LIBMPI", os.path.realpath(path.locate()))
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (metadata.PackageNotFoundError, ImportError, RuntimeError) as error:
        raise SetupError(f"MPI cannot be loaded: {error}.", "pip install mpi4py mpich") from error
    version = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    if "MPICH" not in version:
        raise SetupError(f"mpi4py has found {version!r}, and ranks meet by PMI-1 of MPICH.", "pip install mpich")
    if MPI.Is_initialized():
        raise SetupError("MPI has begun in this process before.", "start each rank in a fresh process")
    return MPI


def _line(error: Exception) -> str:
    """The last line of MPI's stack of errors, which is the first cause."""
    return str(error).strip().rpartition("\n")[2].strip()

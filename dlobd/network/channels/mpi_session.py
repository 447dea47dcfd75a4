"""MPI in this process, started over a PMI connection and restricted to one transport.

    transport     environment of MPICH, whose transport is UCX or libfabric (OFI)
    tcp, ipoib    MPICH_CH4_NETMOD=ucx UCX_TLS=tcp UCX_NET_DEVICES=INTERFACE
      on loopback MPICH_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=lo       because UCX 1.20.1 reports "no route" there
    rdma          MPICH_CH4_NETMOD=ucx UCX_TLS=rc UCX_NET_DEVICES=DEVICE:PORT
    shm           MPICH_CH4_NETMOD=ucx UCX_TLS=shm

The list of transports has no fallback, so MPI cannot start without the requested transport. MPIR_CVAR_NOLOCAL=1 keeps
MPICH from using its own shared memory between ranks of one host. A process can start MPI once, and must be a fresh
process, because the environment is set before MPI is loaded.

MPI neither authenticates nor encrypts, and does not report that a peer has died.
"""

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

from dlobd.channel import transports_of
from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.base import Array, ChannelError, DeadlinePassed, environment_variables
from dlobd.network.channels.ip import resolve

MpiObject = Any  # object of mpi4py

LIBRARY = "mpi"

YIELD_S = 0.01
"""Time for which a rank polls and yields its core before it sleeps: a late wake-up rarely costs more than this."""

SLEEP_S = 50e-6  # interval between polls of a sleeping rank
START_S = 120.0  # timeout of the start of MPI: longer than the timeout of a PMI barrier, which expires first
END_S = 30.0  # timeout of the end of MPI, once all ranks have called it
_started = False  # MPI starts at most once in a process
_STARTING = threading.Lock()  # guards `_started`


def environment(transport: str, device: str) -> dict[str, str]:
    """Return the environment variables for MPICH, UCX and libfabric.

    The device is an interface, its IPv4 address or its network, empty for loopback; or an RDMA device with its port, as
    in mlx5_0:1 (default: port 1). Raises UsageError, SetupError: MPI cannot carry the transport, or use the device.
    """
    if transport not in transports_of(LIBRARY):
        carried = ", ".join(transports_of(LIBRARY))
        raise UsageError(f"Library {LIBRARY} cannot carry {transport!r}.", f"use one of {carried}")
    ucx = {"MPIR_CVAR_NOLOCAL": "1", "MPICH_CH4_NETMOD": "ucx", "UCX_LOG_FILE": "stderr"}
    if transport == "shm":
        return {**ucx, "UCX_TLS": "shm"}
    if transport == "rdma":
        if not device:
            raise UsageError("Channel rdma needs the name of its device.", "write it as in rdma@mlx5_0:1")
        return {**ucx, "UCX_TLS": "rc", "UCX_NET_DEVICES": device if ":" in device else f"{device}:1"}
    interface, _ = resolve(transport, device)
    if interface.type == interfaces.LOOPBACK:
        return {
            "MPIR_CVAR_NOLOCAL": "1",
            "MPICH_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
            "FI_TCP_IFACE": interface.name,
        }
    return {**ucx, "UCX_TLS": "tcp", "UCX_NET_DEVICES": interface.name}


class MpiSession:
    """MPI with all ranks of the job. `world` is their communicator, whose errors are exceptions.

    All ranks start it together. If a rank dies during the start, MPICH ends the processes of all ranks. If a rank dies
    later, MPI reports an error, or MPICH crashes when it sends to the dead rank: MPICH 5.0 over UCX gets SIGSEGV in
    about 10 % of cases. The process that ended first is then the dead rank.

    MPI owns the PMI connection until this process ends; a single rank needs no connection. Raises SetupError:
    MPI was started in this process before, is not MPICH, or cannot use the transport.
    """

    def __init__(self, preset: dict[str, str], pmi: socket.socket | None, rank: int = 0, size: int = 1) -> None:
        global _started
        with _STARTING:
            if _started:
                raise SetupError("MPI was started in this process before.", "start each rank in a fresh process")
            _started = True
            self.preset = preset
            with environment_variables(preset):
                try:
                    self.mpi = _loaded()
                except SetupError:
                    if pmi is not None:
                        pmi.close()
                    raise
                place = {"PMI_RANK": str(rank), "PMI_SIZE": str(size)}
                if pmi is not None:
                    place["PMI_FD"] = str(pmi.detach())
                with environment_variables(place):
                    self._session, self.world = self._start(preset)

    def _start(self, preset: dict[str, str]) -> tuple[MpiObject, MpiObject]:
        mpi = self.mpi
        asked = mpi.Info.Create({"thread_level": "MPI_THREAD_MULTIPLE"})
        try:
            with _or_exit(START_S):
                # a session reports a missing transport, but MPI_Init would end the process; later calls use the
                # world communicator, because some errors of a session end the process
                session = mpi.Session.Init(asked, mpi.ERRORS_RETURN)
                mpi.Init_thread(mpi.THREAD_MULTIPLE)
                world = mpi.COMM_WORLD
        except mpi.Exception as error:
            words = " ".join(f"{name}={value}" for name, value in preset.items())
            raise SetupError(f"MPI cannot start with {words}: {_line(error)}.", "see MPI's messages above") from error
        finally:
            asked.Free()
        _unlink_segments()
        return session, world

    def sum(self, array: Array) -> MpiObject:
        """Start to sum an array in place over all ranks; return the request."""
        return self.world.Iallreduce(self.mpi.IN_PLACE, array, op=self.mpi.SUM)

    def all_reduce(self, array: Array) -> None:
        """Call MPI_Allreduce, for comparison: it keeps its core busy and does not return if a rank has died."""
        self.world.Allreduce(self.mpi.IN_PLACE, array, op=self.mpi.SUM)

    def barrier(self) -> MpiObject:
        return self.world.Ibarrier()

    def complete(
        self, begin: Callable[[], MpiObject], deadline_s: float, what: str, sleep: bool, given_up: Callable[[], bool]
    ) -> None:
        """Start a request and poll until it is complete. MPI makes progress only while it is polled.

        A poll may block forever, for example when libfabric sends to a dead rank. A caller that depends on the deadline
        calls this in a thread that it can abandon. MPI releases Python's lock meanwhile.

        Args:
            what: start of the error message, such as `MPI did not complete an all-reduce`.
            sleep: sleep between polls, because this rank only waits for other ranks.
            given_up: function that returns True once the caller has stopped waiting.

        Raises DeadlinePassed: MPI is unusable afterwards; ChannelError: MPI has failed.
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
        """End MPI on all ranks together. A failed rank must not call it, because it would wait for the other ranks.

        Raises ChannelError: MPI has failed.
        """
        try:
            with _or_exit(END_S):
                self.mpi.Finalize()
                self._session.Finalize()
        except self.mpi.Exception as error:
            raise ChannelError(f"MPI cannot end: {_line(error)}") from error


def _unlink_segments() -> None:
    """Unlink MPICH's shared memory segments, 1 MB per rank: they would remain after a kill of this process."""
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[-1] for line in maps}
    for name in mapped:
        if name.startswith("/dev/shm/mpich_shm_"):
            Path(name).unlink(missing_ok=True)


@contextmanager
def _or_exit(within_s: float) -> Iterator[None]:
    """Exit with status 1 and a traceback on stderr after a timeout: MPI blocks all Python threads while it starts."""
    faulthandler.dump_traceback_later(within_s, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _loaded() -> MpiObject:
    try:
        for path in metadata.files("mpich") or ():
            if path.name == "libmpi.so.12":  # mpi4py searches for libmpi only below the interpreter's prefix
                os.environ.setdefault("MPI4PY_LIBMPI", os.path.realpath(path.locate()))
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (metadata.PackageNotFoundError, ImportError, RuntimeError) as error:
        raise SetupError(f"MPI cannot be loaded: {error}.", "pip install mpi4py mpich") from error
    version = MPI.Get_library_version().split("\n")[0].strip("\0 ")
    if "MPICH" not in version:
        raise SetupError(f"mpi4py uses {version!r}, but dlobd needs MPICH, which has PMI-1.", "pip install mpich")
    if MPI.Is_initialized():
        raise SetupError("MPI was started in this process before.", "start each rank in a fresh process")
    return MPI


def _line(error: Exception) -> str:
    """Return the last line of MPI's error stack, which is the root cause."""
    return str(error).strip().rpartition("\n")[2].strip()

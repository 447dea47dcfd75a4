"""MPI_Allreduce in place on the fusion buffers, the reference for dlobd's own all-reduces.

Ranks start MPI through the PMI server in the driver, whose address is in RENDEZVOUS. The collective is MPI_Iallreduce,
polled until it is complete: it takes as long as MPI_Allreduce, but a waiting rank does not keep its core busy. MPI does
not report dead ranks, so a long call also asks the store for them. MPI is restricted to one transport:

    transport     environment of MPICH, whose transport is UCX or libfabric (OFI)
    tcp, ipoib    MPICH_CH4_NETMOD=ucx UCX_TLS=tcp UCX_NET_DEVICES=INTERFACE
      on loopback MPICH_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=lo       because UCX 1.20.1 reports "no route" there
    rdma          MPICH_CH4_NETMOD=ucx UCX_TLS=rc UCX_NET_DEVICES=DEVICE:PORT
    shm           MPICH_CH4_NETMOD=ucx UCX_TLS=shm

The list of transports has no fallback, so MPI cannot start without the requested transport. MPIR_CVAR_NOLOCAL=1 keeps
MPICH from using its own shared memory between ranks of one host. A process can start MPI once, and must be a fresh
process, because the environment is set before MPI is loaded.

MPI neither authenticates nor encrypts.
"""

import faulthandler
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from dlobd.channel import over_ip, transports_of
from dlobd.errors import SetupError, UsageError
from dlobd.network import interfaces
from dlobd.network.channels.base import Array, ChannelError, DeadlinePassed, environment_variables
from dlobd.network.channels.ip import local_address, resolve
from dlobd.network.collectives.mesh import ExchangeFailed
from dlobd.network.exchanges.outside_step import JoinContext, OutsideStepExchange, Peers
from dlobd.network.rendezvous.pmi import connect_pmi
from dlobd.network.rendezvous.store import RendezvousError, StoreClient

MpiObject = Any  # object of mpi4py

LIBRARY = "mpi"

YIELD_S = 0.01
"""Time for which a rank polls and yields its core before it sleeps: a late wake-up rarely costs more than this."""

SLEEP_S = 50e-6  # interval between polls of a sleeping rank
START_S = 120.0  # timeout of the start of MPI: longer than the timeout of a PMI barrier, which expires first
FINALISE_S = 30.0  # timeout of the end of MPI, once all ranks have called it
_started = False  # MPI starts at most once in a process
_STARTING = threading.Lock()  # guards `_started`

ASK_AFTER_S = 1.0
"""Time after which a call asks the store for dead ranks, repeatedly: two messages of a few bytes per second."""

POLL_S = 0.05  # interval between checks of the store's answer
LEAVE_S = 30.0  # timeout of a finished rank that waits for the other ranks after the last exchange
END_S = 1.0  # time for an abandoned call to return
STUCK_S = 3.0  # timeout of a rendezvous at the store after a passed deadline, which finds the blocked rank


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


@dataclass(slots=True)
class _Call:
    """Call of MPI, and its result."""

    begin: Callable[[], MpiObject]  # starts the request
    deadline_s: float
    what: str  # start of the error message, such as `MPI did not complete an all-reduce`
    sleep: bool  # between polls, because this rank only waits for other ranks
    done: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)
    error: ChannelError | None = None


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

    def complete(self, call: _Call) -> None:
        """Start the request of a call and poll until it is complete. MPI makes progress only while it is polled.

        A poll may block forever, for example when libfabric sends to a dead rank. A caller that depends on the deadline
        calls this in a thread that it can abandon. MPI releases Python's lock meanwhile.

        Raises DeadlinePassed: MPI is unusable afterwards; ChannelError: MPI has failed.
        """
        sleeps_from_s = time.monotonic() + YIELD_S if call.sleep else call.deadline_s
        try:
            request = call.begin()
            while not request.Test():
                now_s = time.monotonic()
                if now_s > call.deadline_s or call.given_up.is_set():
                    raise DeadlinePassed(f"{call.what} in time")
                if now_s < sleeps_from_s:
                    os.sched_yield()
                else:
                    time.sleep(SLEEP_S)
        except self.mpi.Exception as error:
            raise ChannelError(f"{call.what}: {_line(error)}") from error

    def finalise(self) -> None:
        """End MPI on all ranks together. A failed rank must not call it, because it would wait for the other ranks.

        Raises ChannelError: MPI has failed.
        """
        try:
            with _or_exit(FINALISE_S):
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


class MpiAllReduce(OutsideStepExchange):
    """Exchange `mpi`: MPI_Iallreduce of MPICH."""

    def connect(self, context: JoinContext) -> "MpiPeers":
        """Start MPI in this process. Raises also SetupError if MPI cannot carry the transport."""
        preset = environment(context.channel.transport, context.channel.device)
        netmods = context.all_gather("netmod", preset["MPICH_CH4_NETMOD"])
        if len(set(netmods)) > 1:
            ranks = ", ".join(f"rank {k} {netmod}" for k, netmod in enumerate(netmods))
            raise ExchangeFailed(f"ranks on loopback cannot reach other hosts by MPI: {ranks}")
        pmi = connect_pmi(context.pmi, context.rank, context.size, context.secret, context.deadline_s)
        channel = context.channel
        addresses = (local_address(channel.transport, channel.device),) if over_ip(channel.transport) else ()
        return MpiPeers(MpiSession(preset, pmi, context.rank, context.size), context.store, addresses)


class MpiPeers(Peers):
    """MPI's communicator. MPI reports neither transfers nor bytes; ranks ask the store for dead ranks.

    One thread makes all MPI calls except the first and last. A call that does not return is abandoned with its thread,
    which ends with the process; the process may then end by a crash.
    """

    def __init__(self, session: MpiSession, store: StoreClient, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.session = session
        self._store = store
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._failed = False
        self._asking: threading.Thread | None = None
        self._dead: int | None = None
        self._thread = threading.Thread(target=self._call_all, name="dlobd-mpi", daemon=True)
        self._thread.start()

    def barrier(self, call: int, deadline_s: float) -> None:
        self._run(_Call(self.session.barrier, deadline_s, "not all ranks reached a barrier of MPI", sleep=True))

    def all_reduce(self, array: Array, deadline_s: float) -> None:
        self._run(_Call(lambda: self.session.sum(array), deadline_s, "MPI did not complete an all-reduce", sleep=False))

    def close(self) -> None:
        """End MPI together with the other ranks. After a failure MPI ends with this process."""
        try:
            if not self._failed:
                self.barrier(-1, time.monotonic() + LEAVE_S)  # after the last exchange
            self._queue.put(None)
            self._thread.join(END_S)
            if not self._failed:
                self.session.finalise()
        except (ExchangeFailed, ChannelError) as error:
            print(f"dlobd: MPI was not finalised: {error}", file=sys.stderr, flush=True)
        if self._asking is not None:
            self._asking.join()

    def _call_all(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                self.session.complete(call)
            except ChannelError as error:
                call.error = error
            call.done.set()

    def _run(self, call: _Call) -> None:
        if self._failed:
            raise ExchangeFailed("MPI failed in an earlier call")
        self._queue.put(call)
        if not call.done.wait(min(ASK_AFTER_S, call.deadline_s - time.monotonic())):
            self._watch(call)
        if call.error is None and call.done.is_set():
            return
        self._failed = True
        call.given_up.set()
        call.done.wait(END_S)  # a process may crash if it ends while a thread is inside MPI
        if self._dead is not None:
            raise ExchangeFailed(f"rank {self._dead} is gone: {call.what}")
        if call.error is None or isinstance(call.error, DeadlinePassed):
            raise ExchangeFailed(f"{call.what} in time{self._who_is_stuck()}") from call.error
        raise ExchangeFailed(str(call.error)) from call.error

    def _watch(self, call: _Call) -> None:
        """Ask the store for dead ranks until the call is done or its deadline has passed."""
        while self._dead is None and time.monotonic() < call.deadline_s:
            if self._asking is None or not self._asking.is_alive():
                self._asking = threading.Thread(target=self._ask, name="dlobd-mpi-ask", daemon=True)
                self._asking.start()
            if call.done.wait(POLL_S):
                return

    def _ask(self) -> None:
        self._dead = self._store.first_dead()

    def _who_is_stuck(self) -> str:
        """Name the live ranks that do not join the search: they have not passed the deadline, but are blocked."""
        try:
            self._store.all_gather("search for the blocked rank", "", time.monotonic() + STUCK_S)
        except RendezvousError as error:
            return f": {error}"
        return ""

"""One launch: starts all processes of a route, passes on their meetings, and collects their figures.

If a process fails, or the launch takes too long, all processes are killed, and the completed points are kept.
"""

import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from dlobd import __version__
from dlobd.channel import Channel
from dlobd.fields import decoded
from dlobd.micro.plan import DRIVER, Point, Role, Route
from dlobd.micro.processes import Received
from dlobd.micro.results import Figures, Launch, PointResult
from dlobd.network.verdict.evidence import TransportEvidence, carried
from dlobd.network.verdict.rules import verdict
from dlobd.record.run import Plane

START_S = 60.0  # time for the start of all processes, with imports of TensorFlow
SLACK = 3.0  # factor on the planned duration: verification, and a busy machine
SETTLE_S = 0.3  # time for messages after a failure
POINT_S = 20.0  # time for the preparation of a point


class Process(Protocol):
    """Started process of a role."""

    def send(self, message: Any) -> None: ...
    def stop(self) -> None: ...


class Site(Protocol):
    """Host that can start processes."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    def start(self, role: Role, received: Received) -> Process: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """Points of one route.

    servers: processes that listen; 0 for the ranks of an exchange.
    pins: True to bind each process to a core of its own.
    """

    route: Route
    points: tuple[Point, ...]
    servers: int = 1
    pins: bool = False

    @property
    def limit_s(self) -> float:
        """Timeout of a launch, in seconds."""
        return START_S + sum(SLACK * (one.seconds + one.warm_up_s) + POINT_S for one in self.points)


def launch(plan: Plan, sites: Sequence[Site], number: int, stopped: threading.Event | None = None) -> Launch:
    """Run one launch with a process on each site."""
    return _Coordinator(plan, sites, number).run(stopped or threading.Event())


class _Coordinator:
    def __init__(self, plan: Plan, sites: Sequence[Site], number: int) -> None:
        self._plan, self._sites, self._number = plan, sites, number
        self._inbox: SimpleQueue[tuple[int, dict[str, Any]]] = SimpleQueue()
        self._processes: dict[int, Process] = {}
        self._meetings: dict[str, dict[int, str]] = {}
        self._figures: dict[int, dict[int, Figures]] = {point: {} for point in range(len(plan.points))}
        self._ended: dict[int, dict[str, Any]] = {}
        self._until_s = time.monotonic() + plan.limit_s

    def run(self, stopped: threading.Event) -> Launch:
        failed = ""
        with ExitStack() as opened:
            try:
                self._start(opened, stopped)
                while len(self._ended) < len(self._sites):
                    self._take(*self._next(stopped))
            except _Failure as error:
                failed = f"{error}{self._settled()}"
        return self._launched(failed)

    def _start(self, opened: ExitStack, stopped: threading.Event) -> None:
        secret, book = secrets.token_hex(16), ""
        addresses = tuple(site.address for site in self._sites)

        def role(rank: int) -> Role:
            plan = self._plan
            core = rank if plan.pins and rank >= 0 else None
            return Role(plan.route, plan.points, rank, plan.servers, addresses, secret, book, core, plan.limit_s)

        def start(rank: int) -> None:
            process = self._sites[max(0, rank)].start(role(rank), lambda message: self._inbox.put((rank, message)))
            self._processes[rank] = process
            opened.callback(process.stop)

        if self._plan.route.exchange:
            start(DRIVER)
            while not book:
                rank, message = self._next(stopped)
                book = message.get("ready", "")
                if not book:
                    self._take(rank, message)
        for rank in range(len(self._sites)):
            start(rank)

    def _next(self, stopped: threading.Event) -> tuple[int, dict[str, Any]]:
        while True:
            if stopped.is_set():
                raise _Failure("it was interrupted")
            if (left_s := self._until_s - time.monotonic()) <= 0:
                raise _Failure(f"it did not end within {self._plan.limit_s:.0f} s")
            try:
                return self._inbox.get(timeout=min(left_s, 0.2))
            except Empty:
                continue

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        name = "the driver" if rank == DRIVER else f"process {rank} on {self._sites[rank].name}"
        if "meet" in message:
            values = self._meetings.setdefault(message["meet"], {})
            values[rank] = message["value"]
            if len(values) == message["of"]:
                answer = {"values": [values[each] for each in sorted(values)]}
                for each in self._meetings.pop(message["meet"]):
                    self._processes[each].send(answer)
        elif "point" in message:
            number = message.pop("point")
            self._figures[number][rank] = decoded(Figures, {"rank": rank, **message})
        elif "ended" in message:
            found = message["ended"]
            if found["version"] != __version__:
                raise _Failure(f"{name} has dlobd {found['version']}, and this machine has {__version__}")
            self._ended[rank] = found
        elif "failed" in message:
            raise _Failure(f"{name} failed: {message['failed']}")
        elif "gone" in message and rank not in self._ended:
            raise _Failure(f"{name} is gone: {message['gone']}")

    def _settled(self) -> str:
        """Take the figures that arrive shortly after a failure; name the first process that was killed, if any."""
        killed, until_s = "", time.monotonic() + SETTLE_S
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                rank, message = self._inbox.get(timeout=left_s)
            except Empty:
                break
            if "point" in message:
                self._take(rank, message)
            elif "gone" in message and message["code"] < 0:
                killed = killed or f"; process {rank} on {self._sites[rank].name} was killed"
        return killed

    def _launched(self, failed: str) -> Launch:
        count = len(self._sites)
        points = tuple(
            PointResult(point, tuple(figures[rank] for rank in sorted(figures)))
            for point, figures in zip(self._plan.points, self._figures.values(), strict=True)
            if len(figures) == count
        )
        ended = self._ended.values()
        links = [one["link_bytes_per_s"] for one in ended]
        plane, again_bytes = (None, None) if failed else self._transport()
        return Launch(
            self._number,
            self._plan.route,
            tuple(site.name for site in self._sites),
            points,
            transport=plane,
            retransmitted_bytes=again_bytes,
            clock_resolution_ns=max((one["clock_resolution_ns"] for one in ended), default=None),
            clock_cost_ns=max((one["clock_cost_ns"] for one in ended), default=None),
            failed=failed,
            link_bytes_per_s=min(links) if links and None not in links else None,
            cores=min((one["cores"] for one in ended), default=None),
        )

    def _transport(self) -> tuple[Plane | None, int | None]:
        """Return the verdict, and the bytes that TCP sent again."""
        found = [self._ended[rank].get("transport") for rank in sorted(self._ended)]
        if not all(found):
            return None, None
        evidence = [TransportEvidence.from_attrs(attrs) for attrs in found if attrs]
        own = [(one.before.sockets, one.after.sockets) for one in evidence]
        sockets = [socket for before, after in own if after for socket in carried(before or (), after)]
        again_bytes = sum(socket.again_bytes for socket in sockets) if sockets else None
        return verdict("exchange", Channel(self._plan.route.channel), evidence), again_bytes


class _Failure(Exception):
    """Reason for the failure of a launch."""

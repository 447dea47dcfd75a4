"""Results of micro-benchmarks: raw times of all launches, as JSON with a schema."""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dlobd import __version__
from dlobd.errors import BundleError
from dlobd.fields import decoded, described, json_schema, member, plain
from dlobd.micro import samples
from dlobd.micro.plan import Point, Route
from dlobd.micro.samples import Summary
from dlobd.micro.use import Use
from dlobd.record.run import Plane

SCHEMA = 1  # version of the format
THIS, NAMESPACES = "here", "namespaces"  # places on this machine
BEGIN = '{"schema":'  # start of the JSON text, by which it is found in the output of a job


@described()
class Figures:
    """Figures of one process at one point."""

    rank: int = member("Number of the process; processes that listen have the first numbers.")
    times_ns: tuple[int, ...] = member("Time of each recorded call or batch, in order.", unit="ns")
    batches_ns: tuple[int, ...] = member("Benchmark ps: time of each batch of calls.", unit="ns", default=())
    bad: int = member("Messages that failed verification.", default=0)
    use: Use | None = member("Resource use of the timed sections; null: unknown.", default=None)


class _WithDict:
    """Base class with a `__dict__`, which cached properties need, and which a class with slots has not."""


@described()
class PointResult(_WithDict):
    """Figures of all processes at one point."""

    point: Point = member("Benchmark, payload and limits.")
    ends: tuple[Figures, ...] = member("Figures by process.")

    @property
    def times_ns(self) -> list[int]:
        """Times of calls or batches. Calls of ranks: the maximum over the ranks; calls of workers: all."""
        every = [end.times_ns for end in self.ends if end.times_ns]
        if self.point.benchmark == "exchange":
            return [max(times) for times in zip(*every, strict=False)]
        rows = zip_longest(*every)  # in turn, as they ran: the warm-up of all workers is at the beginning
        return [time_ns for row in rows for time_ns in row if time_ns is not None]

    @cached_property
    def summary(self) -> Summary | None:
        """Summary of the times; None without times. It is made once, because tables and pictures share it."""
        return samples.summary(self.times_ns, open_loop=bool(self.point.rate))

    @property
    def bad(self) -> int:
        """Messages that failed verification. Both sides count them: those with times, and those that serve.

        For ranks: calls with a wrong sum, on the rank with most.
        """
        if self.point.benchmark == "exchange":
            return max((end.bad for end in self.ends), default=0)
        measure = sum(end.bad for end in self.ends if end.times_ns)
        return max(measure, sum(end.bad for end in self.ends) - measure)


@described()
class Launch:
    """One start of all processes of a route."""

    number: int = member("Number of the launch of this route, from 0.")
    route: Route = member("Channel, library, exchange.")
    hosts: tuple[str, ...] = member("Host of each process.")
    points: tuple[PointResult, ...] = member("Completed points.")
    transport: Plane | None = member("Verdict; null: unknown, as for exchanges and failed launches.", default=None)
    retransmitted_bytes: int | None = member("Bytes that TCP sent again; null: unknown.", unit="bytes", default=None)
    clock_resolution_ns: int | None = member("Resolution of the clock.", unit="ns", default=None)
    clock_cost_ns: int | None = member("Mean time of a reading of the clock.", unit="ns", default=None)
    failed: str = member("Reason for the failure; the completed points are kept.", default="")
    link_bytes_per_s: float | None = member(
        "Rate of the slowest interface, or of --link; null: unknown.", unit="bytes/s", default=None
    )
    cores: int | None = member(
        "Cores that processes may use, on the host with the fewest; null: unknown.", default=None
    )


@described()
class Results:
    """Launches of a study, in the order in which they ran."""

    schema: int = member("Version of this format.")
    version: str = member("Version of dlobd.")
    machine: str = member("Processor, cores, kernel.")
    place: str = member("Place of the processes: here, namespaces, spark, or addresses of agents.")
    cores: int = member("Cores of this machine that processes may use.", minimum=1)
    memcpy_bytes_per_s: float | None = member("Bandwidth of a copy of 64 MiB in memory.", unit="bytes/s", default=None)
    launches: tuple[Launch, ...] = member("Launches.", default=())
    notes: tuple[str, ...] = member("Remarks, such as one host only.", default=())

    def routes(self) -> list[Route]:
        """Return the routes in the order of their first launches."""
        return list(dict.fromkeys(launch.route for launch in self.launches))

    def of(self, route: Route) -> Iterator[Launch]:
        return (launch for launch in self.launches if launch.route == route)

    def at(self, route: Route, point: Point) -> list[tuple[Launch, PointResult]]:
        """Return the launches of a route that completed a point, with their figures."""
        return [(launch, one) for launch in self.of(route) for one in launch.points if one.point == point]

    def oversubscribed(self, launch: Launch) -> bool:
        """Return True if a host has more processes of the launch than cores. Network namespaces are one host."""
        one_host = self.place in (THIS, NAMESPACES)
        most = len(launch.hosts) if one_host else max(Counter(launch.hosts).values(), default=0)
        return most > (launch.cores or self.cores)

    def points(self) -> list[Point]:
        """Return the points in the order of the plans."""
        return list(dict.fromkeys(one.point for launch in self.launches for one in launch.points))

    def text(self) -> str:
        """Return the JSON text."""
        return json.dumps(plain(self)) + "\n"


def empty(machine: str, place: str, cores: int) -> Results:
    """Return results without launches."""
    return Results(SCHEMA, __version__, machine, place, cores)


def read(path: Path) -> Results:
    """Read results. Raises BundleError: the file is missing, damaged, or of another format."""
    try:
        return parsed(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path} cannot be read: {error}.", "dlobd micro latency -o FILE") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BundleError(f"{path} has no results of dlobd micro: {error}.", "dlobd micro latency -o FILE") from error


def parsed(text: str) -> Results:
    """Parse results. Raises ValueError, TypeError, KeyError or AttributeError: invalid text."""
    value: dict[str, Any] = json.loads(text)
    if value["schema"] != SCHEMA:
        raise ValueError(f"its format is {value['schema']}, and this version of dlobd reads {SCHEMA}")
    return decoded(Results, value)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the results."""
    return json_schema(Results)

"""Process of a launch: reads its role from stdin, measures, and writes messages to stdout, as lines of JSON.

    ─► role
    ◄─ {"meet": name, "of": n, "value": v}    waits for n processes; the answer has their values, by rank
    ─► {"values": [...]}
    ◄─ {"ready": text}                        driver: the address of the key-value store
    ◄─ {"point": number, ...}                 figures of a point, as soon as it has ended
    ◄─ {"ended": evidence}                    transport evidence, clock, link; or {"failed": line}

Arrays, secrets and addresses are data: nothing is unpickled.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from dlobd import __version__
from dlobd.axes import LIBRARIES
from dlobd.channel import over_ip
from dlobd.errors import DlobdError
from dlobd.fields import decoded, plain
from dlobd.hadoop.embedded.processes import die_with_parent
from dlobd.micro import calls, loops
from dlobd.micro.bare import BareChannel
from dlobd.micro.loops import Link, Samples
from dlobd.micro.plan import BARE, DRIVER, Role, Route
from dlobd.micro.use import Meter
from dlobd.network.channels.base import ChannelError, Connection, OpenChannel
from dlobd.network.channels.ip import local_address, resolve
from dlobd.network.collectives.mesh import RANK, accept_ranks
from dlobd.network.verdict.evidence import Snapshot, record

CONNECT_S = 30.0  # time for all connections, once all processes have met
CLOCK_READS = 10_000


class _Pipe:
    """Standard input and output of the process, which carry the messages. Prints of libraries go to stderr."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def read(self) -> Any:
        if not (line := sys.stdin.readline()):
            os._exit(1)  # the coordinator is gone
        return json.loads(line)

    def write(self, message: Any) -> None:
        self._out.write(json.dumps(plain(message)) + "\n")


def main() -> None:
    """Run the role; a failure is one line, and ends the process without waiting for threads."""
    pipe = _Pipe()
    role: Role = decoded(Role, pipe.read())
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(round(role.deadline_s) + 1)  # the last resort: a call in a library may not return
    try:
        if role.rank == DRIVER:
            from dlobd.micro.ranks import drive

            drive(role, lambda book: pipe.write({"ready": book}))
        else:
            _run(role, pipe)
    except (DlobdError, ChannelError, OSError, ValueError) as error:
        pipe.write({"failed": " ".join(str(error).split()) or type(error).__name__})
        os._exit(1)
    except Exception as error:  # noqa: BLE001  the message of any failure goes to the user
        pipe.write({"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"})
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def _run(role: Role, pipe: _Pipe) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if role.core is not None:
        os.sched_setaffinity(0, {cores[role.core % len(cores)]})
    meter = Meter()

    def meet(name: str, value: str, of: int = len(role.addresses)) -> list[str]:
        pipe.write({"meet": name, "of": of, "value": value})
        return [str(one) for one in pipe.read()["values"]]

    def report(number: int, samples: Samples) -> None:
        pipe.write({"point": number, **vars(samples), "use": meter.taken()})

    before = Snapshot.read()
    if role.route.exchange:
        from dlobd.micro.ranks import Rank

        rank = Rank(role)
        for number, point in enumerate(role.points):
            report(number, rank.measure(point, meet))
        rank.close()
        pipe.write({"ended": _facts(role.route, len(cores))})
        return
    route = role.route
    made: Any = BareChannel if route.library == BARE else LIBRARIES.get(route.library)
    channel: OpenChannel = made(route.transport, route.device, role.secret.encode())
    links = _connected(role, channel, meet, meter)
    workers = len(role.addresses) - role.servers
    for number, point in enumerate(role.points):
        if point.benchmark != "ps":
            samples = (loops.serve if role.listens else loops.measure)(links[0], point)
        elif role.listens:
            samples = calls.serve(links, point)
        else:
            samples = calls.measure(links, point, workers, lambda name, value: meet(name, value, workers))
        report(number, samples)
    traffic = None if route.library == BARE else channel.evidence()
    lanes = traffic.lanes if traffic else ()
    addresses = (local_address(route.transport, route.device),) if over_ip(route.transport) else ()
    found = record(role.rank, route.library, before, lanes=lanes, traffic=traffic, addresses=addresses)
    meet("end", "")  # the counters of a connection are gone when either end closes it
    channel.close()
    pipe.write({"ended": {"transport": found, **_facts(role.route, len(cores))}})


def _connected(role: Role, channel: OpenChannel, meet: Callable[[str, str], list[str]], meter: Meter) -> list[Link]:
    """Connect the process to all servers, or to all others; return the links by rank."""
    listener = channel.listen() if role.listens else None
    addresses = meet("address", listener.address if listener else "")[: role.servers]
    until_s, deadline_s = time.monotonic() + CONNECT_S, time.monotonic() + role.deadline_s
    found: dict[int, Connection] = {}
    if listener:
        accept_ranks(listener, range(role.servers, len(role.addresses)), found, until_s)
    else:
        for number, address in enumerate(addresses):
            found[number] = channel.connect(address, until_s)
            found[number].send(RANK.pack(role.rank), until_s)
    return [Link(found[number], channel.capabilities.begins, deadline_s, meter) for number in sorted(found)]


def _facts(route: Route, cores: int) -> dict[str, Any]:
    """Return version, cores, clock and link rate of this host; the rate is None if the kernel reports none."""
    link_bytes_per_s = None
    if over_ip(route.transport) and (speed := resolve(route.transport, route.device)[0].speed_mbit_per_s):
        link_bytes_per_s = speed * 1e6 / 8
    return {
        "version": __version__,
        "cores": cores,
        "clock_resolution_ns": round(1e9 * time.get_clock_info("perf_counter").resolution),
        "clock_cost_ns": clock_cost_ns(),
        "link_bytes_per_s": link_bytes_per_s,
    }


def clock_cost_ns() -> int:
    """Return the mean time of a reading of the clock, in nanoseconds."""
    readings = [time.perf_counter_ns() for _ in range(CLOCK_READS)]
    return (readings[-1] - readings[0]) // (CLOCK_READS - 1)


if __name__ == "__main__":
    main()

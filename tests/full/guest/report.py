"""Runs in the guest and prints as JSON what its devices are, what moves their counters, and what dlobd says of them."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))  # for modules that tests share

from dlobd import spans as kinds
from dlobd.channel import Channel
from dlobd.network.channels.base import Traffic
from dlobd.network.devices import devices
from dlobd.network.exchanges.outside_step import RENDEZVOUS
from dlobd.network.rendezvous.store import KeyValueStore
from dlobd.network.verdict.evidence import Snapshot, TransportEvidence, record
from dlobd.network.verdict.rules import verdict
from tests import ucx_ends
from tests.recorded import read_all

ITERATIONS, MESSAGE_BYTES = 50, 4096
CARRIED_BYTES = 2 * ITERATIONS * MESSAGE_BYTES
"""What a ping-pong of two ends sends, and receives."""

ROCE_V2_IPV4 = 1
"""The row of the GID table with the interface's IPv4 address, behind the link-local one."""

PATIENCE_S = 60.0

RANKS_S = 180.0
"""For three processes that import numpy, and exchange: emulated, on two cores."""

RANK = Path(ucx_ends.__file__).with_name("exchange_rank.py")


def rc_ping_pong(server: str, client: str) -> None:
    """A reliable connection between two devices, by rdma-core's own program."""
    command = ["ibv_rc_pingpong", "-g", str(ROCE_V2_IPV4), "-n", str(ITERATIONS), "-s", str(MESSAGE_BYTES), "-c"]
    listening = subprocess.Popen([*command, "-d", server], stdout=sys.stderr)
    try:
        end = time.monotonic() + PATIENCE_S
        while subprocess.run([*command, "-d", client, "127.0.0.1"], stdout=sys.stderr).returncode:
            if time.monotonic() > end or listening.poll() is not None:
                raise TimeoutError(f"no ping-pong between {server} and {client}")
            time.sleep(0.2)
        if listening.wait(PATIENCE_S):
            raise ChildProcessError(f"ibv_rc_pingpong on {server} ended with {listening.returncode}")
    finally:
        listening.kill()
        listening.wait()


def over_tcp() -> list[socket.socket]:
    """The same bytes between the addresses of both devices, by TCP; the connections are still open."""
    with socket.create_server(("10.9.1.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname(), PATIENCE_S, ("10.9.0.1", 0))
        there, _ = listener.accept()
    there.settimeout(PATIENCE_S)
    for _ in range(ITERATIONS):
        for sender, receiver in ((here, there), (there, here)):
            sender.sendall(bytes(MESSAGE_BYTES))
            got = 0
            while got < MESSAGE_BYTES:
                got += len(receiver.recv(MESSAGE_BYTES))
    return [here, there]


def counted(transfer: Callable[[], Any], asked: str) -> dict[str, Any]:
    """Packets sent and received by each port during a transfer, and the verdict on it."""
    before = Snapshot.read()
    kept = transfer()
    after = Snapshot.read()
    del kept
    # the channel claims verbs, whatever was used: its words alone may prove nothing
    traffic = Traffic("verbs", "rxe0:1", 2 * ITERATIONS, CARRIED_BYTES, 2 * ITERATIONS, CARRIED_BYTES, 0, 0)
    evidence = TransportEvidence.from_attrs(record(0, "verbs", before, traffic=traffic, after=after))
    return {
        "packets": {
            one.name: [one.counts.sent_packets, one.counts.received_packets] for one in after.since(before).ports
        },
        "plane": dataclasses.asdict(verdict("transfer", Channel.parse(asked), [evidence])),
    }


def exchange(channel: str, library: str, ranks: int = 3) -> dict[str, Any]:
    """A ring all-reduce of dlobd's between processes: what each has of the last of three, and the verdict on them."""
    peers = ",".join(f"127.0.0.1:{number}" for number in range(1, ranks + 1))
    with tempfile.TemporaryDirectory() as spans, closing(KeyValueStore("127.0.0.1", ranks, b"guest")) as store:
        place = {RENDEZVOUS: json.dumps({"address": store.address, "secret": "guest"})}
        started = [
            subprocess.Popen(
                [sys.executable, str(RANK), spans, str(rank), peers, "ring", channel, library, "3"],
                env={**os.environ, **place},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            ended = [process.communicate(timeout=RANKS_S) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
        told = [i for one in read_all(Path(spans)) if (i := one.instant(kinds.TRANSPORT))]
    evidence = [TransportEvidence.from_attrs(one.attrs) for one in told]
    means = [stdout.strip() or stderr for stdout, stderr in ended]
    return {"means": means, "plane": dataclasses.asdict(verdict("exchange", Channel.parse(channel), evidence))}


def both_ends(channel: str) -> dict[str, Any]:
    """Messages, parts, put and get between two processes over ucx, and the verdict on them."""
    transport, _, device = channel.partition("@")
    evidence = ucx_ends.met([ucx_ends.end(code, transport, device) for code in (ucx_ends.ECHO, ucx_ends.ASK)])
    return {
        "lanes": evidence[0].lanes,
        "plane": dataclasses.asdict(verdict("exchange", Channel.parse(channel), evidence)),
    }


def doctor(*options: str) -> dict[str, Any]:
    """`dlobd doctor`: its exit code, and its findings of RDMA and of what is required, by part."""
    command = [sys.executable, "-m", "dlobd", "doctor", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    findings = json.loads(done.stdout)["findings"] if done.stdout else []
    return {"code": done.returncode, "stderr": done.stderr, "findings": {one["part"]: one for one in findings}}


BRIEF = ("--launches", "1", "--time", "0.2", "--sizes", "8,64K", "--json")


def micro(*words: str) -> dict[str, Any]:
    """Run `dlobd micro`; return its exit code, its errors, and its results."""
    done = subprocess.run([sys.executable, "-m", "dlobd", "micro", *words, *BRIEF], capture_output=True, text=True)
    return {"code": done.returncode, "stderr": done.stderr, "results": json.loads(done.stdout or "null")}


def with_loss(percent: int, work: Callable[[], Any]) -> Any:
    """Call a function while loopback loses packets."""
    loses = ("dev", "lo", "root", "netem", "loss", f"{percent}%")
    subprocess.run(["tc", "qdisc", "add", *loses], check=True)
    try:
        return work()
    finally:
        subprocess.run(["tc", "qdisc", "del", *loses[:3]], check=True)


def main() -> None:
    """One report, so that one guest is enough for all tests."""
    report = {
        "locked_memory": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY,
        "links": json.loads(subprocess.check_output(["rdma", "-j", "link"])),
        "devices": {one.name: dataclasses.asdict(one) for one in devices()},
        "one device": counted(lambda: rc_ping_pong("rxe0", "rxe0"), "rdma@rxe0:1"),
        "two devices": counted(lambda: rc_ping_pong("rxe0", "rxe1"), "rdma"),
        "tcp": counted(over_tcp, "rdma@rxe0:1"),
        "idle": counted(lambda: time.sleep(0.5), "rdma@rxe0:1"),
        "ucx": both_ends("rdma@rxe0:1"),
        "ring": {"rdma@rxe0:1": exchange("rdma@rxe0:1", "ucx"), "tcp": exchange("tcp", "sockets")},
        "micro": micro(
            *("latency", "bandwidth", "bidirectional", "rate", "put", "get", "ps", "exchange"),
            *("--servers", "1", "--workers", "1", "--exchange", "ring", "--channel", "rdma@rxe0:1"),
        ),
        "micro with loss": with_loss(3, lambda: micro("bandwidth", "--channel", "tcp", "--library", "sockets")),
        "doctor": doctor("--require", "rdma"),
        "doctor soft": doctor("--require", "rdma", "--allow-soft"),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

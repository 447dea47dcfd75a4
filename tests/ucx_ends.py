"""Two ends of library ucx as processes, and their evidence."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence

from dlobd.network.verdict.evidence import TransportEvidence
from tests.namespaces import Host

PATIENCE_S = 30.0

END = """\
import json, sys, time
import numpy as np
from dlobd.network.channels.ip import local_address
from dlobd.network.channels.ucx.channel import UcxChannel
from dlobd.network.verdict.evidence import Snapshot
from dlobd.network.verdict.evidence import record

def soon():
    return time.monotonic() + 30

transport, device = sys.argv[1], sys.argv[2]
before = Snapshot.read()
channel = UcxChannel(transport, device, b"of this test")

def listening():
    listener = channel.listen()
    print(listener.address, flush=True)
    return listener.accept(soon())

def connected():
    return channel.connect(sys.stdin.readline().strip(), soon())

def proof(rank):
    told = channel.evidence()
    own = [local_address(transport, device)] if transport == "tcp" else []
    print(json.dumps(record(rank, "ucx", before, lanes=told.lanes, traffic=told, addresses=own)), flush=True)

"""


def end(code: str, transport: str, device: str, host: Host | None = None) -> subprocess.Popen[str]:
    """Start a process that runs END and the code on a host."""
    command = [*(host.command if host else ()), sys.executable, "-c", END + textwrap.dedent(code), transport, device]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


ECHO = """
    end, memory = listening(), np.empty(6_000_000, np.uint8)
    for _ in range(5):
        size = end.recv(memory, soon())
        end.send(memory[:size], soon())
    own = np.zeros(1000, np.uint8)
    end.send(end.register(own), soon())
    end.recv(memory, soon())
    assert own[:5].tolist() == [7] * 5 and own.sum() == 35, own[:10]
    proof(0)
    end.recv(memory, soon())
    channel.close()
"""

ASK = """
    end, memory = connected(), np.empty(6_000_000, np.uint8)
    for size in (0, 1, 4097, 65_536, 5_000_001):
        message = np.random.default_rng(size).integers(0, 255, size, np.uint8)
        cut = size // 3
        end.send_parts([message[:cut], message[cut:]], soon())
        assert end.recv_parts([memory[:cut], memory[cut:]], soon()) == size
        assert (memory[:size] == message).all()
    key = bytes(memory[: end.recv(memory, soon())])
    end.put(np.full(5, 7, np.uint8), key, 0, soon())
    end.flush(soon())
    got = np.empty(3, np.uint8)
    end.get(got, key, 3, soon())
    assert got.tolist() == [7, 7, 0]
    end.send(b"put", soon())
    proof(1)
    end.send(b"bye", soon())
    channel.close()
"""


def met(ends: Sequence[subprocess.Popen[str]]) -> list[TransportEvidence]:
    """Return the evidence of both ends, the listening one first."""
    address = ends[0].stdout.readline()
    assert address.startswith("ucx:"), ends[0].communicate(timeout=PATIENCE_S)
    said = [ends[1].communicate(address, PATIENCE_S), ends[0].communicate(timeout=PATIENCE_S)]
    assert [one.returncode for one in ends] == [0, 0], said
    return [TransportEvidence.from_attrs(json.loads(out.splitlines()[-1])) for out, _ in reversed(said)]

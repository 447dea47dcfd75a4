"""The mini-cluster as a person uses it: `docker compose` on docker/compose.yaml, in a project of the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

from dlobd.bundle.store import Bundle

from .engine import TOP, Engine

PROJECT = "dlobdtest"
LAN, FABRIC = "10.77.11.0/24", "10.77.12.0/24"
"""Not those of a person's own mini-cluster on this machine."""

RUNS = "/home/dlobd/runs"
PORTS = 8
UP_S = 400.0
RUN_S = 400.0
COUNTERS = "/proc/net/dev"


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command printed and returned."""

    code: int
    out: str
    err: str
    took_s: float

    @property
    def failure(self) -> str:
        assert "Traceback" not in self.out + self.err, self.err
        (line,) = [line for line in (self.out + self.err).splitlines() if line.startswith("dlobd: ")]
        return line


@dataclass(frozen=True)
class MiniCluster:
    """One project.

    Args:
        kept: where bundles are brought.
        ports: of this machine: ResourceManager, NameNode, history server, then the NodeManagers.
        settings: variables of compose.yaml.
        overrides: files beside it.
    """

    engine: Engine
    kept: Path
    ports: range
    settings: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[Path, ...] = ()

    def with_(self, *overrides: Path, **settings: str) -> MiniCluster:
        return replace(self, settings={**self.settings, **settings}, overrides=overrides or self.overrides)

    @property
    def environment(self) -> dict[str, str]:
        first = self.ports[0]
        own = {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "LAN_SUBNET": LAN,
            "FABRIC_SUBNET": FABRIC,
            **{name: str(first + i) for i, name in enumerate(("RM_PORT", "NAMENODE_PORT", "HISTORY_PORT"))},
            "NODE_PORTS": f"{first + 3}-{self.ports[-1]}",
        }
        return {**os.environ, **self.engine.environment, **own, **self.settings}

    def command(self, *words: str) -> list[str]:
        files = [TOP / "docker" / "compose.yaml", *self.overrides]
        return ["docker", "compose", *(word for file in files for word in ("--file", str(file))), *words]

    def compose(self, *words: str, within_s: float = UP_S) -> Ended:
        began = time.monotonic()
        done = subprocess.run(
            self.command(*words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def up(self) -> Ended:
        ended = self.compose("up", "--detach", "--no-build", "--wait")
        assert ended.code == 0, ended.err + self.compose("logs", "--no-color", "--tail", "20").out
        return ended

    def down(self, *words: str) -> Ended:
        ended = self.compose("down", *words)
        assert ended.code == 0, ended.err
        return ended

    def edge(self, *words: str, within_s: float = RUN_S) -> Ended:
        """`docker compose run edge WORDS`, as in the quickstart."""
        return self.compose("run", "--rm", "--no-TTY", "edge", *words, within_s=within_s)

    def dlobd(self, experiment: str, *settings: str, within_s: float = RUN_S) -> Ended:
        return self.edge("dlobd", "run", experiment, *told(settings), within_s=within_s)

    def started(self, experiment: str, *settings: str) -> subprocess.Popen[str]:
        words = ("run", "--rm", "--no-TTY", "edge", "dlobd", "run", experiment, *told(settings))
        return subprocess.Popen(
            self.command(*words),
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def inside(self, service: str, *words: str, index: int = 1, within_s: float = 60.0) -> Ended:
        return self.compose("exec", "--no-TTY", "--index", str(index), service, *words, within_s=within_s)

    def bundle(self, ended: Ended) -> Bundle:
        """The bundle that the last line names, brought here."""
        last = ended.out.splitlines()[-1]
        assert last.startswith("bundle: "), (ended.out[-2000:], ended.err[-2000:])
        return self.fetched(last.removeprefix("bundle: "))

    def latest(self) -> Bundle:
        return self.fetched(
            self.inside("edge", "sh", "-c", f"ls -d {RUNS}/*/2*/ | sort -t/ -k6 | tail -n 1").out.strip()
        )

    def fetched(self, path: str) -> Bundle:
        """A bundle of the volume, brought here as the page says: by tar."""
        command = self.command("exec", "--no-TTY", "edge", "tar", "-C", path, "-c", ".")
        packed = subprocess.run(command, env=self.environment, capture_output=True, timeout=60, check=True).stdout
        to = self.kept / Path(path).name
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(to, filter="data")
        return Bundle(to)

    def container(self, service: str, index: int = 1) -> str:
        return f"{PROJECT}-{service}-{index}"

    def sent_bytes(self, service: str, index: int = 1) -> dict[str, int]:
        """Network (`lan`, `fabric`) to the bytes that a container has sent over it."""
        listed = json.loads(self.inside(service, "ip", "-json", "address", index=index).out)
        names = {
            link["ifname"]: "lan" if address["local"].startswith(LAN.rpartition(".")[0]) else "fabric"
            for link in listed
            for address in link["addr_info"]
            if address["local"].startswith(("10.77.11.", "10.77.12."))
        }
        rows = self.inside(service, "cat", COUNTERS, index=index).out.splitlines()
        found = {row.split(":")[0].strip(): row.split(":")[1].split() for row in rows if ":" in row}
        return {network: int(found[name][8]) for name, network in names.items()}


def told(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]

"""A Docker engine: the one that answers here, else one of the tests' own, which needs no image registry.

An engine of the tests' own runs for as long as they do, as root, in a directory of its own, without any rules of a
firewall: containers reach each other and are reached from this machine, and nothing leaves it. Images are built in
the network of this machine. Its base image is made by debootstrap, with this machine's package sources, certificates
and pip's settings in it. DLOBD_TEST_ENGINE names a directory that is to stay, so that the next run has the image.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PLUGINS = TOP / ".cache" / "docker"
"""Where `.ci/compose-plugin` puts `docker compose`."""

BASE = "debian:bookworm-slim"
SUITE = "bookworm"
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
READY_S = 60.0
MADE_S = 300.0


class NoEngineError(Exception):
    """There is none here, and none can be started; one line."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers. `environment` is for its clients; `own` if the tests started it."""

    environment: Mapping[str, str]
    own: bool

    def docker(
        self, *words: str, within_s: float = 60.0, check: bool = True, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """A command of Docker's; `settings` are added to the environment."""
        return _run(("docker", *words), {**self.environment, **settings}, within_s, check)


@contextmanager
def engine() -> Iterator[Engine]:
    """Yields an engine with `docker compose` and the base image.

    Raises:
        NoEngineError: there can be none.
    """
    environment = {"DOCKER_CONFIG": str(PLUGINS)} if PLUGINS.is_dir() else {}
    if shutil.which("docker") is None:
        raise NoEngineError("there is no docker; tests/compose/packages.txt names what to install")
    if _run(("docker", "compose", "version"), environment, check=False).returncode != 0:
        raise NoEngineError("docker has no compose; .ci/compose-plugin .cache/docker unpacks it")
    if _run(("docker", "info"), environment, check=False).returncode == 0:
        yield Engine(environment, own=False)
        return
    lacking = [name for name in ("dockerd", "debootstrap") if _program(name) is None]
    if os.geteuid() or lacking:
        raise NoEngineError(f"no Docker engine answers, and to start one needs root, {' and '.join(lacking) or 'too'}")
    stays = os.environ.get("DLOBD_TEST_ENGINE", "")
    directory = Path(stays) if stays else Path(tempfile.mkdtemp(prefix="dlobd-engine-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with _started(directory, environment) as found:
            if not found.docker("images", "--quiet", BASE).stdout.strip():
                _make_base(found, directory / "base")
            yield found
    finally:
        if not stays:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _started(directory: Path, environment: Mapping[str, str]) -> Iterator[Engine]:
    socket, forwarding = directory / "socket", FORWARDING.read_text()
    command = [
        str(_program("dockerd")),
        *("--data-root", str(directory / "data"), "--exec-root", str(directory / "exec")),
        *("--pidfile", str(directory / "pid"), "--host", f"unix://{socket}"),
        *("--storage-driver", "overlay2", "--bridge", "none", "--iptables=false", "--ip6tables=false"),
    ]
    with (directory / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    found = Engine({**environment, "DOCKER_HOST": f"unix://{socket}"}, own=True)
    try:
        deadline = time.monotonic() + READY_S
        while found.docker("info", check=False).returncode != 0:
            if daemon.poll() is not None or time.monotonic() > deadline:
                last = (directory / "log").read_text(errors="replace").splitlines()[-1:]
                raise NoEngineError(f"dockerd does not run here: {last}")
            time.sleep(0.2)
        yield found
        if left := found.docker("ps", "--quiet").stdout.split():
            found.docker("kill", *left)
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        FORWARDING.write_text(forwarding)  # the engine switched it on


def _make_base(found: Engine, root: Path) -> None:
    """The image that the Dockerfile begins with, from this machine's package sources."""
    shutil.rmtree(root, ignore_errors=True)
    asked = ("apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {SUITE}")
    mirror = _run(asked, {}).stdout.split()[0]
    debootstrap = (str(_program("debootstrap")), "--variant=minbase", "--include=ca-certificates", SUITE)
    _run((*debootstrap, str(root), mirror), {}, MADE_S)
    (root / "etc/apt/sources.list").write_text(f"deb {mirror} {SUITE} main\n")
    for path in [*Path("/etc/apt/apt.conf.d").iterdir(), Path("/etc/pip.conf")]:
        if path.is_file() and (path.name == "pip.conf" or "Acquire::" in path.read_text()):
            shutil.copy(path, root / path.relative_to("/"))
    for path in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        shutil.copy(path, root / path.relative_to("/"))
    _run(("chroot", str(root), "update-ca-certificates"), {})
    for path in root.glob("var/cache/apt/archives/*.deb"):
        path.unlink()
    with subprocess.Popen(("tar", "-C", str(root), "-c", "."), stdout=subprocess.PIPE) as packed:
        imported = ("docker", "import", "-", BASE)
        environment = {**os.environ, **found.environment}
        subprocess.run(imported, stdin=packed.stdout, env=environment, check=True, capture_output=True, timeout=MADE_S)
    shutil.rmtree(root)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _run(
    command: Sequence[str], environment: Mapping[str, str], within_s: float = 60.0, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=within_s, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done

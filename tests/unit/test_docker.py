"""The files of the mini-cluster: what they let through, what they let out, and that their figures agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import node
import pytest
import yaml

TOP = Path(__file__).parents[2]
DOCKER = TOP / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
IGNORE = (TOP / ".dockerignore").read_text()
COMPOSE = (DOCKER / "compose.yaml").read_text()

FILES = sorted(DOCKER.glob("*.yaml"))


def copied() -> list[str]:
    """What the Dockerfile copies from the repository."""
    sources = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    return [word for words in sources for word in words if not word.startswith("--")]


def allowed(path: str, ignore: str = IGNORE) -> bool:
    """Whether .dockerignore lets a path into the build: the last line that fits it, or a folder that it is in."""
    places = [path, *(str(parent) for parent in Path(path).parents if str(parent) != ".")]
    decided = True
    for line in ignore.splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            parts = [re.escape(part).replace(r"\*", "[^/]*") for part in pattern.removeprefix("!").split("/")]
            expression = "/".join(parts).replace("[^/]*[^/]*/", "(?:.*/)?")
            if any(re.fullmatch(expression, place) for place in places):
                decided = pattern.startswith("!")
    return decided


def test_dockerignore_is_read_as_docker_reads_it() -> None:
    """The last line that fits decides; ** is any number of folders, none included."""
    ignore = "# comment\n*\n!a\n!b/c.py\na/secret\n**/x\n"
    taken = ["a", "a/b", "a/b/c", "b/c.py"]
    left = ["c", "b/d.py", "a/secret", "a/secret/b", "x", "a/x", "a/b/x/y"]
    assert [path for path in [*taken, *left] if allowed(path, ignore)] == taken


def test_every_file_that_is_copied_is_let_through() -> None:
    """Each that git has below what the Dockerfile names; a forgotten one fails an hour later, or only in a run."""
    for source in copied():
        command = ["git", "-C", str(TOP), "ls-files", "--", source]
        files = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        assert files, f"{source} is not there"
        for file in files:
            assert allowed(file), file


def test_nothing_else_is_let_through() -> None:
    """What is not copied would only make the build slow, or another one after each test."""
    for path in [
        *("tests/unit/test_docker.py", "runs/latest/run.json", ".git/config", ".venv/bin/python", "bench/__main__.py"),
        *("docs/results.md", "Makefile", "docker/compose.yaml", "docker/.env", "docker/Dockerfile", "CHANGELOG.md"),
        *("dlobd/__pycache__/layers.cpython-313.pyc", "dlobd/hadoop/__pycache__/web.cpython-313.pyc", ".env"),
    ]:
        assert not allowed(path), path
    named = [line.removeprefix("!") for line in IGNORE.splitlines() if line.startswith("!")]
    assert sorted(named) == sorted(copied())


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """Those of compose.yaml, by name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
    return found


def test_every_service_has_no_more_rights_than_it_needs(services: dict[str, dict[str, Any]]) -> None:
    """No capability but those that are added by name, nothing of the host but what is published and mounted here."""
    assert set(services) == {"check", "master", "worker", "edge"}
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service.get("cap_add", []) in ([], ["NET_ADMIN"]), name
        for volume in service.get("volumes", []):
            assert not volume.startswith(("/", ".", "~")), f"{name} mounts {volume} of the host"
    for path in FILES:
        for name, service in yaml.safe_load(path.read_text())["services"].items():
            rights = {"privileged", "network_mode", "pid", "ipc", "userns_mode", "security_opt", "user"} & set(service)
            assert rights == ({"network_mode"} if name == "check" else set()), (path.name, name)
    assert services["check"]["network_mode"] == "none"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_ports_are_published_on_this_machine_only(path: Path) -> None:
    """Hadoop has no authentication: without the address Docker would publish them to everyone."""
    for name, service in yaml.safe_load(path.read_text())["services"].items():
        for port in service.get("ports", []):
            assert isinstance(port, str), (name, port)
            assert port.startswith("127.0.0.1:"), (name, port)
            assert port.count(":") - port.count(":-") == 2, (name, port)


def test_published_ports_are_those_on_which_the_daemons_listen(services: dict[str, dict[str, Any]]) -> None:
    """Hadoop's and Spark's web pages, by the figures of docker/node.py; for each worker that the range has."""
    inside = {name: [int(port.rpartition(":")[2]) for port in services[name]["ports"]] for name in ("master", "worker")}
    ports = node.PORTS
    assert inside["master"] == [ports["resourcemanager"]["web"], ports["namenode"]["http"], node.HISTORY_PORT]
    assert inside["worker"] == [ports["nodemanager"]["http"]]


def test_the_memory_check_knows_the_limits_of_the_containers(services: dict[str, dict[str, Any]]) -> None:
    """One figure in two places each; and a worker knows its own, of which it keeps some for its daemons."""
    asked = services["check"]["environment"]
    for name in ("master", "worker", "edge"):
        assert services[name]["mem_limit"] == f"{asked[f'{name.upper()}_MEMORY_MB']}m", name
    assert services["worker"]["environment"]["WORKER_MEMORY_MB"] == asked["WORKER_MEMORY_MB"]
    assert services["worker"]["deploy"]["replicas"] == asked["WORKERS"]
    assert f"{node.RESERVED_MB} of them are for its daemons" in COMPOSE


def test_docker_gives_daemons_as_long_as_dlobd_does(services: dict[str, dict[str, Any]]) -> None:
    """A health check that gives up earlier would end `docker compose up` while they still start."""
    for name in ("master", "worker"):
        assert services[name]["healthcheck"]["start_period"] == f"{node.START_DEADLINE_S:.0f}s", name


HEAD = "".join(re.findall(r"\A(?:#.*\n)+", COMPOSE))
ROWS = {
    name: row
    for row in HEAD.splitlines()
    if (match := re.match(r"#   ([A-Z][A-Z_]+(?: [A-Z][A-Z_]+)*) {2,}", row))
    for name in match[1].split()
}


def test_the_head_of_compose_yaml_names_every_setting() -> None:
    """And nothing that is none; with its default."""
    used = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE))
    assert set(ROWS) == used
    defaults = re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", COMPOSE)
    assert len(defaults) > 10
    for name, default in defaults:
        assert not default or default in re.split(r"[ ,;]+", ROWS[name]), (name, default)
    by_name = {name: {default for found, default in defaults if found == name} for name in used}
    assert [name for name, found in by_name.items() if len(found) > 1] == [], "one default each"


def test_devices_of_the_host_are_in_the_file_for_them_only(services: dict[str, dict[str, Any]]) -> None:
    """compose.rdma.yaml gives workers those for RDMA, with memory that may be pinned."""
    assert not [name for name, service in services.items() if "devices" in service]
    (added,) = yaml.safe_load((DOCKER / "compose.rdma.yaml").read_text())["services"].items()
    assert added == (
        "worker",
        {
            "devices": ["/dev/infiniband:/dev/infiniband"],
            "ulimits": {"memlock": {"soft": -1, "hard": -1}},
            "cap_add": ["IPC_LOCK"],
        },
    )

"""An engine, the image and the cluster of these tests: made once, and gone with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlobd.hadoop.embedded.ports import choose_ports
from tests.compose.cluster import PORTS, MiniCluster
from tests.compose.engine import BASE, TOP, Engine, NoEngineError, engine

IMAGE = "dlobd:latest"
BUILD_S = 900.0


@pytest.fixture(scope="session")
def docker() -> Iterator[Engine]:
    try:
        with engine() as found:
            yield found
    except NoEngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def image(docker: Engine) -> str:
    # the legacy builder, in the machine's own network: an engine of the tests' own has no way out
    own = {"DOCKER_BUILDKIT": "0"} if docker.own else {}
    words = ("build", "--network", "host", "--build-arg", f"BASE={BASE}", "--tag", IMAGE)
    docker.docker(*words, "--file", str(TOP / "docker" / "Dockerfile"), str(TOP), within_s=BUILD_S, **own)
    return IMAGE


@pytest.fixture(scope="session")
def project(docker: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """The cluster, down; afterwards nothing of it is left."""
    first = choose_ports(["127.0.0.1"] * PORTS, None)[0]
    found = MiniCluster(docker, Path(tmp_path_factory.mktemp("bundles")), range(first, first + PORTS))
    try:
        yield found
    finally:
        found.down("--volumes", "--remove-orphans")


@pytest.fixture(scope="module")
def cluster(project: MiniCluster) -> Iterator[MiniCluster]:
    found = project.with_(WORKERS="3")
    found.up()
    yield found
    found.down("--volumes")

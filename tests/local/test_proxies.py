"""A shell with a proxy that does not answer: connections to a cluster do not use it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import requests

from dlobd.hadoop import http_session, webhdfs
from dlobd.hadoop.site_files import HadoopConf
from dlobd.hadoop.web import HadoopWeb, active_resourcemanager
from dlobd.job.launchers.addresses import without_proxy
from dlobd.run.collect import application, external
from tests.web import answering

DEAD = "http://127.0.0.1:9"
VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "grpc_proxy")


@pytest.fixture(autouse=True)
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Proxies for every scheme, without exceptions, and a .netrc with a password for every server."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in VARIABLES:
        monkeypatch.setenv(name, "socks5://127.0.0.1:9" if name == "all_proxy" else DEAD)
    (tmp_path / ".netrc").write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))


def test_hdfs_and_yarn_are_reached_directly() -> None:
    info = {"clusterInfo": {"haState": "ACTIVE"}, "app": {"diagnostics": "d"}, "FileStatus": {"type": "FILE"}}
    with answering(lambda path: info) as netloc:
        with pytest.raises(requests.exceptions.ProxyError):
            requests.get(f"http://{netloc}/", timeout=5)  # the proxies of this test are in force
        url = f"http://{netloc}"
        conf = HadoopConf(Path("/conf"), {"yarn.resourcemanager.webapp.address": netloc})
        assert active_resourcemanager(conf)[0].netloc == netloc
        assert HadoopWeb.get_json(f"{url}/jmx") == info
        assert application.abort(url, "application_1_1") == "d"
        assert external._get(f"{url}/logs/") is not None
        assert webhdfs.block_locations(url, "user", "/a", 1) == info
        with webhdfs.Client(url, "user", timed=False).session as session:
            assert session.get(f"{url}/jmx", timeout=5).json() == info
        assert "Authorization" not in http_session.get(url).request.headers


def reaches(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=2)
        except grpc.FutureTimeoutError:
            return False
        return True


def test_ranks_reach_each_other_and_only_them_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC's core is also that of TensorFlow's servers."""
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        assert not reaches(address)
        for name, value in without_proxy([address], os.environ).items():
            monkeypatch.setenv(name, value)
        assert reaches(address)
        other = f"localhost:{address.rpartition(':')[2]}"
        assert not reaches(other), "the user's own traffic still uses the proxy"
    finally:
        server.stop(0)

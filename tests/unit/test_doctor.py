"""What a machine lacks is said part by part, with a next step; nothing is started or fetched."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from unit.test_hadoop_conf import write

from dlobd import cli
from dlobd.run import doctor
from dlobd.run.doctor import Finding


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, so that what a person has does not count; its path is short, as sockets below it need."""
    cache = tmp_path_factory.mktemp("c")
    monkeypatch.setenv("DLOBD_CACHE", str(cache))
    for name in ("DLOBD_JARS", "DLOBD_PORT_BASE", "DLOBD_JAVA", "DLOBD_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    return cache


def found(part: str) -> Finding:
    """The finding of one part."""
    (one,) = [finding for finding in doctor.examine() if finding.part == part]
    return one


def test_every_part_is_examined() -> None:
    """Each once, with a verdict; what is not ok has a next step."""
    findings = doctor.examine()
    assert [finding.part for finding in findings] == [part for part, _ in doctor.PARTS]
    assert found("Python").verdict == found("kernel").verdict == found("clocks").verdict == "ok"
    assert all(finding.remedy for finding in findings if finding.verdict != "ok")


def test_what_a_run_brings_itself_is_absent_not_broken() -> None:
    """Jars that the first run fetches; a cluster that it starts."""
    assert (found("Hadoop jars").verdict, found("cluster").verdict) == ("absent", "absent")
    assert "4 of 4" in found("Hadoop jars").what


def test_own_jars_that_are_not_there_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would fetch them."""
    monkeypatch.setenv("DLOBD_JARS", str(tmp_path))
    assert found("Hadoop jars").verdict == "broken"
    assert "unset DLOBD_JARS" in found("Hadoop jars").remedy


def test_jars_with_a_wrong_checksum_are_broken(empty_cache: Path) -> None:
    """Each is named."""
    (empty_cache / "jars").mkdir(parents=True)
    for jar in doctor.JARS:
        (empty_cache / "jars" / jar.file_name).write_bytes(b"no jar")
    assert found("Hadoop jars").verdict == "broken"
    assert all(jar.file_name in found("Hadoop jars").what for jar in doctor.JARS)


def test_a_taken_port_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port and the next step are those that a run would print."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("DLOBD_PORT_BASE", str(min(port, 65000)))
        one = found("ports")
    assert one.verdict == "broken" or port > 65000
    assert "DLOBD_PORT_BASE" in one.remedy or port > 65000


def test_settings_that_make_no_sense_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the errors that a run would end with."""
    monkeypatch.setenv("DLOBD_PORT_BASE", "many")
    monkeypatch.setenv("DLOBD_JAVA", str(tmp_path / "nowhere"))
    assert "is not a port number" in found("ports").what
    assert found("Java").verdict == "broken"


def test_what_others_can_connect_to_is_told() -> None:
    """Every third party that listens, with its address and what protects it."""
    programs = " ".join(listener.program for listener in doctor.LISTENERS)
    for name in ("HDFS", "YARN", "Spark", "reservation server", "queue manager", "gRPC"):
        assert name in programs
    assert all(listener.address and listener.protected for listener in doctor.LISTENERS)
    assert "127.0.0.1" not in " ".join(listener.address for listener in doctor.listeners(Path("conf")))


# ---- an external cluster


def answering(bodies: dict[str, dict[str, Any]]) -> ThreadingHTTPServer:
    """A web server that answers as Hadoop's do: path to JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = bodies.get(self.path.partition("&user")[0])
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


HADOOP = {
    "/webhdfs/v1/?op=GETFILESTATUS": {"FileStatus": {}},
    "/webhdfs/v1/?op=GETHOMEDIRECTORY": {"Path": "/user/somebody"},
    "/ws/v1/cluster/info": {"clusterInfo": {"haState": "ACTIVE", "hadoopVersion": "3.5.0"}},
    "/ws/v1/cluster/metrics": {"clusterMetrics": {"activeNodes": 2}},
}


def conf_of(directory: Path, namenode: int, manager: int) -> Path:
    """A HADOOP_CONF_DIR with these ports of this machine."""
    return write(
        directory,
        core={"fs.defaultFS": "hdfs://127.0.0.1:1"},
        hdfs={"dfs.namenode.http-address": f"127.0.0.1:{namenode}"},
        yarn={"yarn.resourcemanager.webapp.address": f"127.0.0.1:{manager}"},
    )


@pytest.fixture
def hadoop() -> Iterator[int]:
    """The port of a web server that says what NameNode and ResourceManager say."""
    server = answering(HADOOP)
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def there(conf: Path) -> dict[str, Finding]:
    """The findings about the external cluster."""
    parts = {part for part, _ in doctor.THERE}
    return {one.part: one for one in doctor.examine(conf) if one.part in parts}


def test_a_cluster_that_answers_is_ok(tmp_path: Path, hadoop: int) -> None:
    """With address, key, home and nodes; what a run there does not need is not looked at."""
    findings = doctor.examine(conf_of(tmp_path, hadoop, hadoop))
    found = {one.part: one for one in findings}
    assert not found.keys() & set(doctor.EMBEDDED)
    assert [found[part].verdict for part in ("NameNode", "ResourceManager", "NodeManagers")] == ["ok"] * 3
    assert "(dfs.namenode.http-address) answers" in found["NameNode"].what
    assert "/user/somebody" in found["NameNode"].what
    assert found["NodeManagers"].what == "2 running"
    assert (found["container logs"].verdict, bool(found["container logs"].remedy)) == ("absent", True)


def test_a_cluster_that_does_not_answer_is_broken(
    tmp_path: Path, hadoop: int, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part by itself, in bounded time: a silent NameNode does not hide that YARN is there."""
    monkeypatch.setattr(doctor, "ANSWER_S", (0.2, 0.2))
    found = there(conf_of(tmp_path, silent, hadoop))
    assert (found["NameNode"].verdict, found["ResourceManager"].verdict) == ("broken", "ok")
    assert f"127.0.0.1:{silent} (dfs.namenode.http-address): no answer within" in found["NameNode"].what
    assert found["NameNode"].remedy
    found = there(conf_of(tmp_path, hadoop, silent))
    assert (found["NameNode"].verdict, found["ResourceManager"].verdict) == ("ok", "broken")
    assert found["NodeManagers"].verdict == "broken"


def test_a_cluster_without_nodes_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job would wait there for ever."""
    monkeypatch.setitem(HADOOP, "/ws/v1/cluster/metrics", {"clusterMetrics": {"activeNodes": 0}})
    server = answering(HADOOP)
    found = there(conf_of(tmp_path, server.server_port, server.server_port))
    server.shutdown()
    server.server_close()
    assert (found["NodeManagers"].verdict, found["NodeManagers"].what) == ("broken", "none is running")


def test_the_exit_code_is_that_of_a_run() -> None:
    """3 where this machine is not fit, 4 where only the other cluster is not there; what is absent costs nothing."""

    def code(**verdicts: doctor.Verdict) -> int:
        return doctor.exit_code([Finding(part, verdict, "") for part, verdict in verdicts.items()])

    assert code(Java="ok", cluster="absent") == 0
    assert code(Java="broken") == 3
    assert code(Java="ok", NameNode="broken") == 4
    assert code(Java="broken", NameNode="broken") == 3


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration that cannot be used is refused as by a run; one that can gives a line a part."""
    assert cli.main(["doctor", "--hadoop-conf", str(tmp_path / "none")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    conf = conf_of(tmp_path, 1, 1)
    assert cli.main(["doctor", "--hadoop-conf", str(conf)]) in (3, 4)  # 3 on a machine without Java 17
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " NameNode " in line]
    assert line.startswith("broken")
    assert "connection refused" in line
    assert "Next: check that this machine can reach that address" in line

"""An external cluster, as far as the command line can refuse it without one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlobd import cli
from dlobd.hadoop import web
from dlobd.hadoop.embedded.java import Java
from dlobd.run import packing
from dlobd.run.place import external
from tests.hadoop_conf import write
from tests.web import answering


@pytest.fixture
def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def stranger() -> Iterator[str]:
    """The address of a web server that is not Hadoop's."""
    with answering(lambda path: "hello") as netloc:
        yield netloc


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and the one line of a command that fails."""
    code = cli.main(list(words))
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.splitlines() if not line.startswith("[")]
    assert line.startswith("dlobd: ")
    assert captured.out == ""
    return code, line


def cluster(directory: Path, namenode: str, manager: str = "127.0.0.1:1") -> list[str]:
    """The command line that names a cluster with these web addresses."""
    write(
        directory,
        core={"fs.defaultFS": "hdfs://127.0.0.1:1"},
        hdfs={"dfs.namenode.http-address": namenode},
        yarn={"yarn.resourcemanager.webapp.address": manager},
    )
    return ["run", "softmax-mnist-quick", "--hadoop-conf", str(directory), "--out", str(directory / "runs")]


def test_nobody_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str], free_port: int) -> None:
    """Exit code 4; the line names the address and its key; no bundle is left."""
    code, line = refused(capsys, *cluster(tmp_path, f"127.0.0.1:{free_port}"))
    assert code == 4
    assert f"127.0.0.1:{free_port} (dfs.namenode.http-address): refused the connection" in line
    assert not (tmp_path / "runs").exists()


def test_an_unknown_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = refused(capsys, *cluster(tmp_path, "no-such-host.invalid:9870"))
    assert code == 4
    assert "no-such-host.invalid:9870 (dfs.namenode.http-address): has an unknown host name" in line


def test_a_host_that_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TIMEOUT_S", (0.5, 0.5))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        code, line = refused(capsys, *cluster(tmp_path, f"127.0.0.1:{silent.getsockname()[1]}"))
    assert code == 4
    assert "did not answer within" in line


def test_a_server_that_is_not_hadoop(tmp_path: Path, capsys: pytest.CaptureFixture[str], stranger: str) -> None:
    code, line = refused(capsys, *cluster(tmp_path, stranger))
    assert code == 4
    assert "it does not answer as Hadoop does" in line


def test_kerberos_is_refused_before_anything_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2; the line names the key."""
    words = cluster(tmp_path, "no-such-host.invalid:9870")
    write(tmp_path, core={"fs.defaultFS": "hdfs://nn", "hadoop.security.authentication": "kerberos"})
    code, line = refused(capsys, *words)
    assert (code, "hadoop.security.authentication=kerberos" in line) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--archive", "a.tar"], "add --hadoop-conf DIR"),
        (["run", "--by-hand"], "add --hadoop-conf DIR"),
        (["run", "--hadoop-conf", "none"], "is not a directory"),
        (["run", "--set", "launcher=native", "--set", "input=read", "--hadoop-conf", "."], "scheduler = yarn"),
        (["collect", "application_1_1"], "set DLOBD_HADOOP_CONF or HADOOP_CONF_DIR"),
        (["collect", "job_1", "--hadoop-conf", "."], "is neither a YARN application ID nor a run ID"),
    ],
)
def test_bad_command_lines(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit code 2 and one line, before anything is asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    code, line = refused(capsys, *words)
    assert (code, said in line) == (2, True), line


def test_a_script_of_ones_own_is_planned_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    script = tmp_path / "mine.py"
    script.write_text("")
    conf = cluster(tmp_path, "no-such-host.invalid:9870")[3]
    line = ("spark-submit", "--deploy-mode", "cluster", "--py-files", "theirs.zip", "--archives", "m.zip", str(script))
    assert cli.main(["submit", "--dry-run", "--hadoop-conf", conf, "--", *line]) == 0
    out = capsys.readouterr().out
    assert "--py-files 'theirs.zip,<package>'" in out
    assert "--archives 'm.zip,hdfs://127.0.0.1:1<hdfs-home>/dlobd/cache/<environment>#environment'" in out
    assert "spark.pyspark.python=./environment/bin/python" in out
    assert f"--files {script.as_uri()}" in out
    assert cli.main(["run", "--job", str(script), "--by-hand", "--hadoop-conf", conf]) == 2
    assert "--by-hand is for dlobd's own experiments" in capsys.readouterr().err


def test_the_plan_asks_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--dry-run prints the spark-submit line; what only the cluster knows stands in angle brackets."""
    assert cli.main([*cluster(tmp_path, "no-such-host.invalid:9870"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "spark.yarn.dist.archives=hdfs://127.0.0.1:1<hdfs-home>/dlobd/cache/<environment>#environment" in out
    assert "spark.pyspark.python=./environment/bin/python" in out
    assert f"HADOOP_CONF_DIR={tmp_path}" in out
    assert list(tmp_path.glob("runs/*")) == []


class Hdfs:
    """HDFS's files, as far as an upload uses them: `Storage` and client in one."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def exists(self, path: str) -> bool:
        return path in self.files

    def write(self, path: str, data: Iterator[bytes]) -> None:
        self.files[path] = b"".join(data)

    def rename(self, path: str, to: str) -> None:
        self.files[to] = self.files.pop(path)

    def delete(self, path: str) -> None:
        self.files.pop(path, None)


def test_an_upload_says_beforehand_how_large_it_is_and_that_it_happens_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hdfs, said = Hdfs(), []
    large = tmp_path / "large"
    large.write_bytes(bytes(3_000_000))
    monkeypatch.setattr(external, "REPORT_S", -1.0)
    monkeypatch.setattr(external, "find_java", lambda: Java(tmp_path, "17", "here"))
    monkeypatch.setattr(external, "WebHdfs", lambda url, user: hdfs)
    monkeypatch.setattr(external.webhdfs, "Client", lambda url, user, timed: hdfs)
    monkeypatch.setattr(packing, "environment", lambda: packing.Tarball("environment-1.tar", {"a": large}, {}))
    monkeypatch.setattr(packing, "spark_libs", lambda jars: packing.Tarball("spark-libs-2.tar", {}, {}))
    monkeypatch.setattr(packing, "package", lambda: tmp_path / "dlobd.zip")
    conf = SimpleNamespace(fs_uri="hdfs://nn:8020", get=lambda key: None)
    web = SimpleNamespace(
        conf=conf, webhdfs_url="http://nn:1", user="me", home="/user/me", hadoop_version="3", node_urls=lambda: ["n"]
    )
    place = external.ExternalHadoop(web, None, said.append)  # type: ignore[arg-type]
    place.upload()
    assert (
        said[0] == "uploading the Python environment, 3 MB, once: hdfs://nn:8020/user/me/dlobd/cache/environment-1.tar"
    )
    assert "uploading the Python environment: 2 of 3 MB" in said
    assert "uploading Spark's jars, 0 MB, once: hdfs://nn:8020/user/me/dlobd/cache/spark-libs-2.tar" in said
    assert sorted(path.rpartition("/")[2] for path in hdfs.files) == ["environment-1.tar", "spark-libs-2.tar"]
    said.clear()
    place.upload()
    assert said == []

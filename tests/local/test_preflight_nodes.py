"""Nodes that have dlobd: each NodeManager is asked which, and only the very same one gets no upload."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dlobd import cli, installation
from dlobd.errors import UsageError
from dlobd.hadoop.site_files import HadoopConf
from dlobd.hadoop.web import HadoopWeb
from dlobd.run import packing
from dlobd.run.place import external
from dlobd.run.place.external import ExternalHadoop
from dlobd.run.preflight.cluster import PYTHON, VERSION, check_nodes
from dlobd.run.schedulers.base import PackedInstallation
from tests.hadoop_conf import write
from tests.web import answering


class Hadoop:
    """A ResourceManager, and NodeManagers with the properties of their configuration; all in one web server.

    As Hadoop 3.5.0's: /conf?name=KEY answers for one property, and with status 404 where there is none.
    """

    def __init__(self, managers: dict[str, dict[str, str]]) -> None:
        self.asked: list[str] = []
        self.managers, self.netloc = managers, ""

    def answer(self, path: str) -> Any:
        """Return the body for a path, None for status 404."""
        url = urlsplit(path)
        self.asked.append(url.path)
        if url.path == "/ws/v1/cluster/nodes":
            return {"nodes": {"node": [self.node(name) for name in self.managers]}}
        host, (key,) = url.path.split("/")[1], parse_qs(url.query)["name"]
        value = self.managers[host].get(key)
        return None if value is None else {"property": {"key": key, "value": value}}

    def node(self, name: str) -> dict[str, Any]:
        """As /ws/v1/cluster/nodes lists it."""
        return {"nodeHostName": name, "nodeHTTPAddress": f"{self.netloc}/{name}", "state": "RUNNING"}

    def web(self, conf: Any = None) -> HadoopWeb:
        return HadoopWeb(conf, "me", "", f"http://{self.netloc}", "3.5.0", "/user/me")


@pytest.fixture
def hadoop() -> Iterator[Any]:
    with ExitStack() as opened:

        def start(**managers: dict[str, str]) -> Hadoop:
            started = Hadoop(managers)
            started.netloc = opened.enter_context(answering(started.answer))
            return started

        yield start


def properties(**other: str) -> dict[str, str]:
    """Of a node with the dlobd that runs this, but for what is `other`."""
    this = installation.this()
    return {VERSION: other.get("version", this.version), PYTHON: other.get("python", this.python)}


def test_nodes_with_the_same_dlobd_pass(hadoop: Any) -> None:
    cluster = hadoop(one=properties(), two=properties())
    check_nodes(cluster.web())
    assert {"/one/conf", "/two/conf"} < set(cluster.asked)


@pytest.mark.parametrize("other", [{"version": "0.1.0+000000000000"}, {"python": "/elsewhere/bin/python"}])
def test_another_dlobd_is_refused_and_both_are_named(hadoop: Any, other: dict[str, str]) -> None:
    """Another version, and the same one at another place, even if only one of several nodes has it."""
    cluster, this = hadoop(one=properties(), two=properties(**other)), installation.this()
    version, python = properties(**other).values()
    with pytest.raises(UsageError) as refusal:
        check_nodes(cluster.web())
    assert refusal.value.what.startswith(
        f"Node two has dlobd {version} at {python}, but this machine has dlobd {this.version} at {this.python}: "
    )
    assert "--archive FILE" in refusal.value.remedy


def test_a_node_that_does_not_say_is_refused(hadoop: Any) -> None:
    cluster = hadoop(one={})
    with pytest.raises(UsageError) as refusal:
        check_nodes(cluster.web())
    assert refusal.value.what.startswith(f"Node one does not report its dlobd at http://{cluster.netloc}/one/conf")


def configuration(directory: Path, said: dict[str, str]) -> HadoopConf:
    write(directory, core={"fs.defaultFS": "hdfs://nn:8020"}, yarn={"yarn.resourcemanager.hostname": "rm", **said})
    return HadoopConf.read(directory)


def place(cluster: Hadoop, conf: HadoopConf, archive: Path | None, monkeypatch: pytest.MonkeyPatch) -> ExternalHadoop:
    """The cluster, with an upload that only says that it was asked for."""

    def installation_of(self: ExternalHadoop) -> PackedInstallation:
        cluster.asked.append(f"upload of {archive}")
        return PackedInstallation("", "", "", Path())

    monkeypatch.setattr(external, "find_java", lambda: SimpleNamespace(version="17", home=Path("/java")))
    monkeypatch.setattr(ExternalHadoop, "_uploaded", installation_of)
    return ExternalHadoop(cluster.web(conf), archive, lambda line: None)


@pytest.mark.parametrize(
    ("said", "archive", "asked"),
    [
        ({VERSION: "any"}, None, ["/one/conf"] * 2),
        ({VERSION: "any"}, Path("mine.zip"), ["upload of mine.zip"]),
        ({}, None, ["upload of None"]),
    ],
)
def test_nothing_is_uploaded_where_nodes_have_dlobd(
    hadoop: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: dict[str, str],
    archive: Path | None,
    asked: list[str],
) -> None:
    cluster = hadoop(one=properties())
    place(cluster, configuration(tmp_path, said), archive, monkeypatch).upload()
    assert [what for what in cluster.asked if what != "/ws/v1/cluster/nodes"] == asked


def test_the_plan_says_whether_there_is_an_upload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the run does it: none where nodes have dlobd, but with --archive, which needs Spark's jars too."""
    archive = tmp_path / "mine.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("bin/python"))
        tar.addfile(tarfile.TarInfo(f"lib/{packing.PYTHON}/os.py"))
    configuration(tmp_path, properties())
    words = ["run", "softmax-mnist-quick", "--hadoop-conf", str(tmp_path), "--dry-run"]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert f"use dlobd on the nodes of {tmp_path}" in " ".join(out.split())
    assert "spark.yarn.dist.archives" not in out
    assert f"spark.pyspark.python={installation.this().python}" in out
    assert cli.main([*words, "--archive", str(archive)]) == 0
    out = capsys.readouterr().out
    assert "use dlobd on" not in out
    assert "spark.yarn.dist.archives=hdfs://nn:8020<hdfs-home>/dlobd/cache/<environment>#environment" in out


def test_the_variable_is_the_options_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration(tmp_path, properties())
    monkeypatch.setenv("DLOBD_HADOOP_CONF", str(tmp_path))
    assert cli.main(["run", "softmax-mnist-quick", "--dry-run"]) == 0
    assert f"HADOOP_CONF_DIR={tmp_path}" in capsys.readouterr().out
    assert cli.main(["run", "softmax-mnist-quick", "--dry-run", "--hadoop-conf", str(tmp_path / "none")]) == 2
    assert "none is not a directory" in capsys.readouterr().err

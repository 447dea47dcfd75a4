"""The configuration of an external cluster: read as Hadoop reads it, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.errors import UsageError
from dlobd.hadoop.site_files import Address, HadoopConf
from tests.hadoop_conf import write


def test_clients_use_the_hosts_of_the_daemons(tmp_path: Path) -> None:
    write(tmp_path, core={"fs.defaultFS": "hdfs://nn.example:8020/"}, yarn={"yarn.resourcemanager.hostname": "rm"})
    conf = HadoopConf.read(tmp_path)
    conf.check_supported()
    assert conf.fs_uri == "hdfs://nn.example:8020"
    assert conf.namenodes() == [Address("nn.example:9870", "fs.defaultFS")]
    assert conf.resourcemanagers() == [Address("rm:8088", "yarn.resourcemanager.hostname")]
    write(
        tmp_path,
        core={"fs.defaultFS": "hdfs://nn"},
        hdfs={"dfs.namenode.http-address": "0.0.0.0:50070"},
        yarn={"yarn.resourcemanager.hostname": "rm", "yarn.resourcemanager.webapp.address": "${yarn.host}:1"},
    )
    conf = HadoopConf.read(tmp_path)
    assert conf.namenodes() == [Address("nn:50070", "dfs.namenode.http-address")]
    assert conf.get("yarn.resourcemanager.webapp.address") == "${yarn.host}:1", "what is unknown stays as it is"


def test_high_availability_has_several_addresses(tmp_path: Path) -> None:
    write(
        tmp_path,
        core={"fs.defaultFS": "hdfs://ns1"},
        hdfs={
            "dfs.ha.namenodes.ns1": "nn1, nn2",
            "dfs.namenode.http-address.ns1.nn1": "a:1",
            "dfs.namenode.http-address.ns1.nn2": "${second}:2",
            "second": "b",
        },
        yarn={
            "yarn.resourcemanager.ha.enabled": "true",
            "yarn.resourcemanager.ha.rm-ids": "rm1,rm2",
            "yarn.resourcemanager.webapp.address.rm1": "c:3",
            "yarn.resourcemanager.hostname.rm2": "d",
        },
    )
    conf = HadoopConf.read(tmp_path)
    assert [address.netloc for address in conf.namenodes()] == ["a:1", "b:2"]
    assert conf.namenodes()[1].key == "dfs.namenode.http-address.ns1.nn2"
    assert conf.resourcemanagers() == [
        Address("c:3", "yarn.resourcemanager.webapp.address.rm1"),
        Address("d:8088", "yarn.resourcemanager.hostname.rm2"),
    ]


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ({"core": {"hadoop.security.authentication": "kerberos"}}, "hadoop.security.authentication=kerberos"),
        ({"hdfs": {"dfs.http.policy": "HTTPS_ONLY"}}, "dfs.http.policy=HTTPS_ONLY"),
        ({"yarn": {"yarn.http.policy": "HTTPS_ONLY"}}, "yarn.http.policy=HTTPS_ONLY"),
        ({"hdfs": {"dfs.webhdfs.enabled": "false"}}, "dfs.webhdfs.enabled=false"),
    ],
)
def test_unsupported_clusters_are_refused_by_their_key(
    tmp_path: Path, sites: dict[str, dict[str, str]], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        HadoopConf.read(write(tmp_path, **sites)).check_supported()


def test_a_directory_that_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        HadoopConf.read(tmp_path / "none")
    with pytest.raises(UsageError, match=r"core-site\.xml cannot be read"):
        HadoopConf.read(tmp_path)
    write(tmp_path, core={"fs.defaultFS": "file:///"})
    conf = HadoopConf.read(tmp_path)
    with pytest.raises(UsageError, match="is 'file:///': dlobd needs HDFS"):
        assert conf.fs_uri
    with pytest.raises(UsageError, match=r"yarn\.resourcemanager\.hostname"):
        conf.resourcemanagers()
    (tmp_path / "hdfs-site.xml").write_text("<configuration><property>")
    with pytest.raises(UsageError, match=r"hdfs-site\.xml is not XML"):
        HadoopConf.read(tmp_path)
    (tmp_path / "hdfs-site.xml").write_text("<html/>")
    with pytest.raises(UsageError, match="its root is <html>"):
        HadoopConf.read(tmp_path)

"""What a client of HDFS asks the NameNode about a DataNode that does not answer it, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dlobd.errors import ClusterError
from dlobd.experiment import files
from dlobd.hadoop import webhdfs
from dlobd.hadoop.file_system import WebHdfs
from dlobd.run import staging
from tests.web import answering

LIVE = {"localhost:9866": {"infoAddr": "127.0.0.2:9864", "xferaddr": "127.0.0.2:9866"}}


@pytest.fixture
def namenode() -> Iterator[str]:
    """The URL of a NameNode with one DataNode, which /jmx lists as JSON in JSON."""
    with answering(lambda path: {"beans": [{"LiveNodes": json.dumps(LIVE)}]}) as netloc:
        yield f"http://{netloc}"


def test_a_datanode_that_is_alive_is_named_by_its_transfer_address(namenode: str) -> None:
    client = webhdfs.Client(namenode, "somebody")
    with client.session:
        assert client.transfer_address("127.0.0.2:9864") == "127.0.0.2:9866"
        assert client.transfer_address("localhost:9864") == "127.0.0.2:9866"


def test_a_datanode_that_was_given_up_meanwhile_needs_no_exclusion(namenode: str) -> None:
    """It died, for the NameNode, while its client waited for it: another one is asked all the same."""
    client = webhdfs.Client(namenode, "somebody")
    with client.session:
        assert client.transfer_address("127.0.0.3:9864") == "127.0.0.3:9864"


def test_a_namenode_that_is_gone_says_nothing() -> None:
    client = webhdfs.Client("http://127.0.0.1:9", "somebody")
    with client.session:
        assert client.transfer_address("127.0.0.3:9864") is None


def test_hdfs_that_is_gone_is_one_clear_line() -> None:
    with pytest.raises(ClusterError, match="HDFS refused") as caught:
        staging.stage(files.load("softmax-mnist-quick"), WebHdfs("http://127.0.0.1:9", "nobody"), "", [].append)
    assert "cluster status" in caught.value.remedy

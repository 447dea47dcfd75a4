"""Staging that waits."""

from __future__ import annotations

import dataclasses

import pytest

from dlobd.errors import ClusterError
from dlobd.experiment import files
from dlobd.hadoop.file_system import WebHdfs
from dlobd.run import staging
from dlobd.schema import Experiment


def small(**changes: object) -> Experiment:
    """The quick experiment on few samples."""
    quick = files.load("softmax-mnist-quick")
    return dataclasses.replace(quick, train_samples=600, test_samples=100, **changes)  # type: ignore[arg-type]


def silent(line: str) -> None:
    """Nobody watches."""


def test_hdfs_that_is_gone_is_one_clear_line() -> None:
    """Nobody listens where the NameNode was: no traceback of an HTTP library."""
    with pytest.raises(ClusterError, match="HDFS refused") as caught:
        staging.stage(small(), WebHdfs("http://127.0.0.1:9", "nobody"), "", silent)
    assert "cluster status" in caught.value.remedy

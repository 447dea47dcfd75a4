"""The fixtures of the cluster tests."""

from tests.cluster.conftest import dlobd, jars, shared_cluster, short_dir

__all__ = ["dlobd", "jars", "shared_cluster", "short_dir"]

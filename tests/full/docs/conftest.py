"""The cluster tests' embedded cluster, as the external cluster of the pages."""

from tests.cluster.conftest import jars, shared_cluster, short_dir

__all__ = ["jars", "shared_cluster", "short_dir"]

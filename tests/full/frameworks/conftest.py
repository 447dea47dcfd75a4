"""The fixtures of the cluster tests: one embedded cluster and one good run for all tests."""

from tests.cluster.conftest import alone, dlobd, jars, quick_run, shared_cluster, short_dir

__all__ = ["alone", "dlobd", "jars", "quick_run", "shared_cluster", "short_dir"]

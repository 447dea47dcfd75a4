"""Training in the guest: minutes each, so that these tests have a shard of their own."""

from cluster.conftest import alone, jars
from guest.fixtures import packages

__all__ = ["alone", "jars", "packages"]

"""Training in the guest: minutes each, so that these tests have a shard of their own."""

from tests.cluster.conftest import alone, jars
from tests.guest.fixtures import packages

__all__ = ["alone", "jars", "packages"]

"""Which place an experiment needs: the first row of the registry that serves it."""

from __future__ import annotations

from dlobd.axes import PLACES
from dlobd.run.place.base import Lent, PlaceKind
from dlobd.schema import Runnable


def kind_of(experiment: Runnable, lent: Lent = None) -> PlaceKind:
    """The kind of place where it runs; some kind serves every valid experiment."""
    kinds: list[PlaceKind] = [PLACES.get(row.name) for row in PLACES]
    return next(kind for kind in kinds if kind.serves(experiment, lent))


def needs_cluster(experiment: Runnable) -> bool:
    """Whether HDFS, at least, has to run."""
    return experiment.scheduler != "none"

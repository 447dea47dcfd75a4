"""Time of a run's exchange of gradients that has no number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlobd.axes import EXCHANGES
from dlobd.schema import NotMeasured


def not_measured(job: Mapping[str, Any]) -> tuple[NotMeasured, ...]:
    """Return the reason why the exchange has no number; empty if it has one.

    Args:
        job: `dlobd.job.description.Job` as a dict.
    """
    name = job.get("exchange", "unknown")
    if name not in EXCHANGES.names():
        why = f"exchange {name} is not known to this version: whether its time lies inside of the steps is not said"
        return (NotMeasured("channel", "tensorflow", why),)
    declared: NotMeasured | None = EXCHANGES.declared(name).not_measured
    return () if declared is None else (declared,)

"""A delay that another application makes: it holds the memory that its queue gives to ApplicationMasters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import requests

from dlobd.errors import ClusterError
from dlobd.hadoop.embedded.cluster import EmbeddedCluster

POINT = "yarn/queue"
ACCEPTED = re.compile(r"(application_\w+) State change from SUBMITTED to ACCEPTED")
"""The run's own application waits for an ApplicationMaster from then on."""

REST_S = 10.0
BLOCKER_S = 300
"""How long the other application would live if it were not killed."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The application that holds the queue, and what ends it."""

    application_id: str
    release: Callable[[], None]


@contextmanager
def held(cluster: EmbeddedCluster, memory_mb: int = 0) -> Iterator[Holder]:
    """Another application's ApplicationMaster has all the memory that its queue gives to ApplicationMasters.

    Args:
        memory_mb: it has only so much.

    Raises:
        ClusterError: YARN does not take it, or does not end it.
    """
    apps = f"{cluster.rm_url}/ws/v1/cluster/apps"

    def state() -> dict[str, object]:
        return dict(requests.get(f"{apps}/{application_id}", timeout=REST_S).json()["app"])

    def release() -> None:
        requests.put(f"{apps}/{application_id}/state", json={"state": "KILLED"}, timeout=REST_S)

    try:
        application_id = requests.post(f"{apps}/new-application", timeout=REST_S).json()["application-id"]
        other = {
            "application-id": application_id,
            "application-name": "holds the queue",
            "max-app-attempts": 1,
            "resource": {"memory": memory_mb or cluster.settings.nodemanager_memory_mb, "vCores": 1},
            "am-container-spec": {"commands": {"command": f"sleep {BLOCKER_S}"}},
        }
        requests.post(apps, json=other, timeout=REST_S).raise_for_status()
        _until(lambda: int(str(state()["allocatedMB"])) > 0, "has its container")
        yield Holder(application_id, release)
    except requests.RequestException as error:
        raise ClusterError(
            f"YARN did not accept another application: {error}.", "check `dlobd cluster status`"
        ) from None
    finally:
        release()
        _until(lambda: state()["state"] == "KILLED", "ends")


def _until(holds: Callable[[], bool], what: str, patience_s: float = 30.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise ClusterError(f"The application that holds the queue never {what}.", "check `dlobd cluster status`")
        time.sleep(0.05)

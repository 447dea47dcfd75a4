"""Fills YARN's queue: another application holds the memory that the queue gives to ApplicationMasters."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import requests

from dlobd.errors import ClusterError
from dlobd.faults.observed_run import LogLine
from dlobd.hadoop import http_session
from dlobd.hadoop.embedded.cluster import EmbeddedCluster

ACCEPTED = LogLine("resourcemanager", re.compile(r"(application_\w+) State change from SUBMITTED to ACCEPTED"))
"""Log line after which the run's own application waits for an ApplicationMaster."""

REST_S = 10.0
FILLER_S = 300
"""Lifetime of the other application if it is not killed."""


@dataclass(frozen=True, slots=True)
class Filler:
    """Application that fills the queue; `release` kills it."""

    application_id: str
    release: Callable[[], None]


@contextmanager
def filled(cluster: EmbeddedCluster, memory_mb: int = 0) -> Iterator[Filler]:
    """Run another application whose ApplicationMaster holds `memory_mb` of the queue; 0 for all of it. Raises
    ClusterError if YARN does not accept the application, or does not end it."""
    apps = f"{cluster.endpoints.rm_url}/ws/v1/cluster/apps"
    session = http_session.session()

    def state() -> dict[str, object]:
        return dict(session.get(f"{apps}/{application_id}", timeout=REST_S).json()["app"])

    def release() -> None:
        session.put(f"{apps}/{application_id}/state", json={"state": "KILLED"}, timeout=REST_S)

    try:
        application_id = session.post(f"{apps}/new-application", timeout=REST_S).json()["application-id"]
        application = {
            "application-id": application_id,
            "application-name": "fills the queue",
            "max-app-attempts": 1,
            "resource": {"memory": memory_mb or cluster.settings.nodemanager_memory_mb, "vCores": 1},
            "am-container-spec": {"commands": {"command": f"sleep {FILLER_S}"}},
        }
        session.post(apps, json=application, timeout=REST_S).raise_for_status()
        _until(lambda: int(str(state()["allocatedMB"])) > 0, "got its container")
        yield Filler(application_id, release)
    except requests.RequestException as error:
        raise ClusterError(f"YARN accepted no other application: {error}.", "check `dlobd cluster status`") from None
    finally:
        release()
        _until(lambda: state()["state"] == "KILLED", "ended")


def _until(holds: Callable[[], bool], event: str, timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise ClusterError(f"The application that fills the queue never {event}.", "check `dlobd cluster status`")
        time.sleep(0.05)

"""One application while the ResourceManager still knows it: what it says, its end, the memory that it took."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import requests

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.hadoop.embedded.configuration import user_name
from dlobd.hadoop.web import HadoopWeb, application_record

END_DEADLINE_S = 20.0
"""How long the containers of an ended application may take to leave."""

_SOON_S = (3.0, 3.0)
"""To connect, and to answer: it is asked again."""

ENDED = ("FINISHED", "FAILED", "KILLED")
"""States of an application that do not change any more."""


def kill_application(rm_url: str, application_id: str) -> None:
    """Asks the ResourceManager to kill an application; silent if it cannot be asked, since dlobd is exiting."""
    try:
        url = f"{rm_url}/ws/v1/cluster/apps/{application_id}/state?user.name={user_name()}"
        requests.put(url, json={"state": "KILLED"}, timeout=3)
    except requests.RequestException:
        pass


def diagnostics(rm_url: str, application_id: str) -> str:
    """What the ResourceManager says of an application now; empty if it says nothing, or cannot be asked."""
    return str(application_record(rm_url, application_id, _SOON_S).get("diagnostics", ""))


def await_end(rm_url: str, nm_urls: Sequence[str], application_id: str, kill: bool) -> dict[str, Any]:
    """Waits until the ResourceManager has finished the application and charged it, and its containers are gone.

    Args:
        nm_urls: the NodeManagers that are asked for its containers.
        kill: whether to kill it at once, because its driver was ended; otherwise only once half the deadline is over.

    Returns:
        The ResourceManager's REST record of the application; {} if it could not be had.
    """
    deadline = time.monotonic() + END_DEADLINE_S
    kill_at = time.monotonic() if kill else deadline - END_DEADLINE_S / 2
    record: dict[str, Any] = {}
    while time.monotonic() < deadline:
        record = application_record(rm_url, application_id, _SOON_S) or record  # else it may be on its way back
        if _charged(record) and not _containers(nm_urls, application_id):
            break
        if time.monotonic() >= kill_at:
            kill_application(rm_url, application_id)
            kill_at = deadline
        time.sleep(0.2)
    return record


def _charged(record: dict[str, Any]) -> bool:
    """Whether the application has ended and its memorySeconds are final.

    The scheduler charges the last containers a little after the end of the application, and then forgets it; the
    record of a forgotten one gives -1 running containers.
    """
    return record.get("state") in ENDED and record.get("runningContainers", -1) < 0


def _containers(nm_urls: Sequence[str], application_id: str) -> list[str]:
    """Containers of the application that NodeManagers still have running, as far as these answer."""
    number = application_id.removeprefix("application_")
    found = []
    for url in nm_urls:
        answer = HadoopWeb.get_json(f"{url}/ws/v1/node/containers", _SOON_S)
        listed = ((answer or {}).get("containers") or {}).get("container", [])
        found += [c["id"] for c in listed if number in c["id"] and c.get("state") not in ("COMPLETE", "DONE")]
    return found


def executor_peak(nm_urls: Sequence[str], application_id: str, bundle: Bundle) -> int | None:
    """The peak of resident memory of the largest executor container with its trainer, in bytes.

    It is the NodeManager's own record, taken once a second over the container's process tree; it keeps the record for
    a minute after the container's end. None where it could not be read.
    """
    number = application_id.removeprefix("application_")
    beans: list[dict[str, Any]] = []
    for url in nm_urls:
        answer = HadoopWeb.get_json(f"{url}/jmx", qry="Hadoop:service=NodeManager,*") or {}
        beans += [bean for bean in answer.get("beans", []) if number in bean.get("name", "")]
    bundle.add_bytes(json.dumps(beans, indent=1).encode(), files.NM_CONTAINERS)
    executors = [bean for bean in beans if not bean["name"].endswith("_000001")]
    peaks_mb = [
        bean[key] for bean in executors for key in bean if key.lower().startswith("pmemusage") and "max" in key.lower()
    ]
    return int(max(peaks_mb)) << 20 if peaks_mb and max(peaks_mb) > 0 else None

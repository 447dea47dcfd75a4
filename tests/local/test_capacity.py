"""The room of another cluster, asked over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dlobd.errors import SetupError
from dlobd.experiment import files
from dlobd.hadoop.web import HadoopWeb
from dlobd.run.preflight.cluster import check_capacity
from tests.web import answering

QUICK = "softmax-mnist-quick"


NODES = {
    "nodes": {
        "node": [
            {
                "availMemoryMB": free_mb,
                "totalResource": {
                    "memory": memory_mb,
                    "vCores": 4,
                    "resourceInformations": {"resourceInformation": [{"name": "memory-mb", "value": memory_mb}, *more]},
                },
            }
            for memory_mb, free_mb, more in ((8192, 8192, []), (4096, 512, [{"name": "yarn.io/gpu", "value": 1}]))
        ]
    }
}


"""Two NodeManagers as Hadoop 3.5.0's ResourceManager tells of them, without what is not read."""


SETTINGS = {"maximum-allocation-mb": "8192", "minimum-allocation-mb": "1024", "maximum-allocation-vcores": "4"}


def note(nodes: dict[str, Any], *settings: str) -> str:
    """Check the quick experiment with `settings` on another cluster."""

    def answer(path: str) -> Any:
        url = urlsplit(path)
        key = parse_qs(url.query).get("name", [""])[0].removeprefix("yarn.scheduler.")
        return {"property": {"value": SETTINGS.get(key)}} if url.path == "/conf" else nodes

    conf: Any = None
    with answering(answer) as netloc:
        web = HadoopWeb(conf, "me", "", f"http://{netloc}", "3.5.0", "/user/me")
        return check_capacity(files.load(QUICK, settings), web)


def test_another_clusters_room_is_known_before_the_upload() -> None:
    """Containers are rounded up to its minimum; the ApplicationMaster goes where it leaves most room; what is only busy
    now is no refusal; and a cluster that does not say is tried."""
    assert note(NODES) == ""
    busy = note(NODES, "workers=4", "train_samples=1200")
    assert busy == "the cluster is busy: only 3 of 4 executors fit until other jobs end"
    with pytest.raises(SetupError) as refusal:
        note(NODES, "workers=6", "train_samples=1200")
    assert refusal.value.what == (
        "6 executors of 512 + 1280 MB and 1 vcore do not fit. On 2 NodeManagers of 4096 to 8192 MB, there is room for "
        "5 beside the ApplicationMaster's 1024 MB."
    )
    with pytest.raises(SetupError, match=r"512 [+] 8000 MB, but YARN allows 8192 MB"):
        note(NODES, "executor_overhead_mb=8000")
    with pytest.raises(SetupError, match="container of 5 vcores, but YARN allows 4"):
        note(NODES, "executor_cores=5")
    assert note({}, "workers=100", "batch_size=10", "train_samples=5000") == ""


def test_a_cluster_without_gpus_is_not_asked_for_one() -> None:
    assert note(NODES, "device=gpu", "workers=1") == ""
    with pytest.raises(SetupError, match="2 workers need 2 GPUs, but YARN has 1"):
        note(NODES, "device=gpu")
    plain: Any = {"nodes": {"node": NODES["nodes"]["node"][:1]}}
    with pytest.raises(SetupError, match=r"device gpu: YARN at http://.* has no resource type yarn.io/gpu"):
        note(plain, "device=gpu")

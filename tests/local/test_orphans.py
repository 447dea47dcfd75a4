"""Applications of a dlobd that was killed: which are ended, and which are nobody's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlobd.hadoop.embedded.configuration import user_name
from dlobd.process_id import ProcessId, identify
from dlobd.run import orphans
from dlobd.run.collect import application
from dlobd.tracing import clock

RM = "http://127.0.0.1:8088"
RUN = "20261122T071930Z-0578"


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lets the next command look at one note and one application; what it ended."""
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead = identify(child.pid)
    child.communicate()

    def look(state: str = "RUNNING", user: str = user_name(), **note: Any) -> list[str]:
        ended: list[str] = []

        def get_json(url: str, applicationTags: str) -> dict[str, Any]:  # noqa: N803  YARN's own name
            assert (url, applicationTags) == (f"{RM}/ws/v1/cluster/apps", "dlobd-20261122t071930z-0578")
            return {"apps": {"app": [{"id": "application_1_1", "state": state, "user": user}]}}

        monkeypatch.setattr(orphans.HadoopWeb, "get_json", staticmethod(get_json))
        monkeypatch.setattr(application, "await_end", lambda rm, nms, name, kill: ended.append(name))
        assert dead is not None
        known = {"run_id": RUN, "rm_url": RM, "domain": clock.domain(), "owner": dead}
        written = orphans.Submission(**{**known, **note})
        path = tmp_path / "submitted" / f"{RUN}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(orphans.asdict(written)))
        said: list[str] = []
        orphans.end_orphans(RM, [], said.append)
        assert len(said) == len(ended)
        left = path.exists()
        return [*said, *(["note stays"] if left else [])]

    return look


def test_what_a_killed_dlobd_left_is_ended_and_said(killed: Callable[..., list[str]]) -> None:
    assert killed() == [f"ended application_1_1, which run {RUN} left running (its dlobd was killed)"]


def test_an_application_that_ended_by_itself_is_not_mentioned(killed: Callable[..., list[str]]) -> None:
    assert killed(state="FINISHED") == []


def test_after_a_restart_of_the_machine_no_owner_lives(killed: Callable[..., list[str]]) -> None:
    host, _, namespace = clock.domain().split("/")
    own = identify(os.getpid())
    assert len(killed(domain=f"{host}/another-boot/{namespace}", owner=own)) == 1


@pytest.mark.parametrize(
    "note",
    [
        {"owner": identify(os.getpid())},
        {"rm_url": "http://elsewhere:8088"},
        {"domain": "another-host/boot/time:[1]"},
        {"domain": f"{clock.domain()}0"},
    ],
    ids=["it lives", "another cluster", "another machine", "another time namespace"],
)
def test_what_may_be_alive_is_not_touched(killed: Callable[..., list[str]], note: dict[str, Any]) -> None:
    assert killed(**note) == ["note stays"]


def test_applications_of_others_are_not_touched(killed: Callable[..., list[str]]) -> None:
    assert killed(user="somebody-else") == []


def test_a_run_is_noted_until_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path))
    path = tmp_path / "submitted" / f"{RUN}.json"
    with orphans.watched(RUN, RM):
        assert ProcessId(**json.loads(path.read_text())["owner"]) == identify(os.getpid())
    assert not path.exists()
    with pytest.raises(KeyboardInterrupt), orphans.watched(RUN, RM):
        raise KeyboardInterrupt
    assert path.exists()
    with orphans.watched("another", None):
        assert [found.stem for found in path.parent.iterdir()] == [RUN]

"""The work after a job ends, whatever it meets: a part that fails, does not end or needs all memory is left out."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlobd.bundle import store
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError
from dlobd.experiment.own_job import from_dict
from dlobd.recompute import computed as record
from dlobd.recompute.limits import LimitExceeded, Parts, limited_memory, limited_time
from dlobd.recompute.verification import verify
from dlobd.record.run import Run
from dlobd.report import sentences
from tests.captured import copy_of


def endless(*_: object) -> Any:
    signal.setitimer(signal.ITIMER_PROF, 0.05, 0.05)  # as if the limit were near
    while True:
        try:
            sum(range(1000))
        except Exception:  # a part may ignore every error
            pass


def greedy(*_: object) -> Any:
    return bytearray(1 << 50)


def faulty(*_: object) -> Any:
    raise KeyError("rank-0")


def test_a_block_that_does_not_end_is_ended() -> None:
    """Also after a block inside it, which restores its limit."""
    before = signal.getsignal(signal.SIGPROF)

    def with_inner_block() -> None:
        with limited_time(100):
            pass
        assert 49 < signal.getitimer(signal.ITIMER_PROF)[0] < 51
        endless()

    with pytest.raises(LimitExceeded, match=r"^more than 50 s of CPU time$"), limited_time(50):
        with_inner_block()
    assert signal.getsignal(signal.SIGPROF) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_a_block_that_needs_too_much_memory_is_ended() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(LimitExceeded, match=r"^more than 32 MB of memory$"), limited_memory(32_000_000):
        bytearray(256_000_000)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    with limited_memory():  # the default suffices for small work
        assert len(bytearray(32_000_000))


def test_another_thread_has_no_limit_of_time() -> None:
    ended: list[bool] = []

    def work() -> None:
        with limited_time(0.01):
            until = time.thread_time() + 0.05
            while time.thread_time() < until:
                pass
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended


def test_an_expected_failure_is_raised() -> None:
    def damaged() -> None:
        raise BundleError("no such file")

    with pytest.raises(BundleError):
        Parts(forgives=True).get("findings", damaged, None)
    with pytest.raises(KeyError):
        Parts().get("findings", faulty, None)


@pytest.mark.parametrize(
    ("part", "name"),
    [("findings", "findings"), ("resources", "resource_use"), ("hdfs", "hdfs_use.summary"), ("imports", "imports")],
)
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (endless, "it needs more than 300 s of CPU time"),
        (greedy, " MB of memory"),
        (faulty, "KeyError: 'rank-0'"),
    ],
)
def test_a_record_lacks_only_the_part_that_cannot_be_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, name: str, wrong: Callable[..., Any], reason: str
) -> None:
    bundle = Bundle(copy_of("own-run", tmp_path))
    run = bundle.read_json()
    monkeypatch.setattr(f"dlobd.recompute.computed.{name}", wrong)
    found = record.computed(bundle, from_dict(run["configuration"]), forgives=True).to_json()
    (omitted,) = found["omitted"]
    assert omitted["part"] == part
    assert omitted["reason"].endswith(reason)
    assert f"omitted: {part}: {omitted['reason']}" in found["warnings"]
    assert {key for key in found if found[key] != run.get(key)} <= {part, "omitted", "warnings"}
    assert found["status"] == "ok"
    # the stored record is valid, and is what the evidence says but for that part
    bundle.write(run | found)
    bundle.seal()
    monkeypatch.undo()
    assert verify(bundle).failed == []


@pytest.mark.parametrize(("part", "name"), [("trace", "assemble"), ("attribution", "attribute"), ("checks", "checks")])
def test_a_run_without_its_breakdown_is_invalid_and_keeps_its_wall_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, name: str
) -> None:
    bundle = Bundle(copy_of("own-run", tmp_path))
    run = bundle.read_json()
    calls = []

    def once(*arguments: object) -> Any:
        calls.append(arguments)
        if name == "attribute" and len(calls) == 1:  # the trace without spans
            return attribute(*arguments)
        raise RecursionError("too deep")

    attribute = record.attribute
    monkeypatch.setattr(f"dlobd.recompute.computed.{name}", once)
    found = record.computed(bundle, from_dict(run["configuration"]), forgives=True).to_json()
    assert (found["status"], found["wall_ns"]) == ("invalid", run["wall_ns"])
    assert found["reason"] == f"the {part} of the job could not be computed: RecursionError: too deep"
    if part != "checks":
        assert found["unattributed_ns"] == run["wall_ns"]
        assert sum(layer["ns"] for layer in found["layers"]) == 0
    store.validate(run | found, "test")
    claim = sentences.no_finding(Run.from_json(run | found))
    assert (claim == "The findings are unknown: see the warnings.") == (part != "checks")

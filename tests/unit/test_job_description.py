"""Descriptions of jobs, and the markers of their ranks in a real directory."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.description import Job, Markers
from dlobd.tracing.recorder import Recorder
from tests.jobs import job


@pytest.fixture
def markers(tmp_path: Path) -> Markers:
    (tmp_path / "run" / "done").mkdir(parents=True)
    return Markers(job(tmp_path))


def test_a_job_survives_json_and_pickle(tmp_path: Path) -> None:
    told = job(tmp_path, seed=7)
    path = tmp_path / "job.json"
    path.write_text(told.to_json())
    assert Job.read(path) == told
    assert pickle.loads(pickle.dumps(told)) == told
    assert told.layout.record_bytes > 784


def test_a_job_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    values = json.loads(job(tmp_path).to_json())
    path.write_text(json.dumps({**values, "new": 1}))
    with pytest.raises(TypeError):
        Job.read(path)
    del values["workers"]
    path.write_text(json.dumps(values))
    with pytest.raises(TypeError):
        Job.read(path)


def test_markers_show_done_ranks_and_the_first_failure(markers: Markers, tmp_path: Path) -> None:
    assert markers.read() == (set(), None)
    markers.report_done(0, {"rank": 0, "steps": 3})
    markers.report_done(11, {"rank": 11})
    directory = tmp_path / "run" / "done"
    (directory / "rank-2.json").write_text("")
    assert markers.read() == ({0, 11}, None)
    assert json.loads((directory / "rank-0.json").read_text()) == {"rank": 0, "steps": 3}
    markers.report_failure("rank 1: RuntimeError: boom\n  at line 3")
    markers.report_failure("rank 0: peer is gone")
    assert markers.read() == ({0, 11}, "rank 1: RuntimeError: boom at line 3")


def test_a_done_marker_is_seen_when_it_is_whole_and_all_spans_are_on_disk(
    markers: Markers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver may end a rank's process as soon as it sees the marker, so nothing may be left to write."""
    recorder = Recorder(tmp_path / "spans", "chief", threaded=False)
    monkeypatch.setattr(tracing, "_recorder", recorder)
    seen = []

    def rename(storage: LocalDirectory, path: str, to: str) -> None:
        spans = "".join(file.read_text() for file in (tmp_path / "spans").iterdir())
        seen.append((json.loads(Path(path).read_text()), markers.read()[0], kinds.WRITE_DONE_MARKER in spans))
        original(storage, path, to)

    original = LocalDirectory.rename
    monkeypatch.setattr(LocalDirectory, "rename", rename)
    markers.report_done(1, {"rank": 1})
    recorder.close()
    assert seen == [({"rank": 1}, set(), True)]
    assert markers.read()[0] == {1}

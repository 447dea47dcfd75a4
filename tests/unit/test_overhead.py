"""The cost of recording a run, from its bundle: counts, estimates, warnings."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd import tracing
from dlobd.attribution.trace import Segments
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.experiment.files import load
from dlobd.experiment.own_job import from_script
from dlobd.measures import recording_cost
from dlobd.paths import shipped
from dlobd.recompute.verification import verify
from dlobd.run import submit_command
from dlobd.timeline.assemble import assemble
from dlobd.tracing import span_cost
from tests.captured import copy_of, recomputed

DATA = Path(__file__).parents[1] / "data"
ON = {"recording": "on", "span_ns": 2_000, "lowest_ns": 1_900, "highest_ns": 2_100, "spans": 200, "repeats": 7}


def bundle_of(directory: Path, known: dict[str, Any] | None = ON) -> Bundle:
    found = Bundle(copy_of("quick-run", directory))
    path = found.path / files.SPAN_COST
    path.unlink() if known is None else path.write_text(json.dumps(known))
    return found


def test_counts_and_estimates_of_a_real_run(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path)
    run = recomputed(bundle)
    found = run["overhead"]
    recorded = list(bundle.spans.rglob("spans-*.jsonl"))
    text = [json.loads(line) for path in recorded for line in path.read_text().splitlines()]
    assert found["spans"] == sum(line["k"] in ("b", "s") for line in text) == run["metrics"]["spans"]
    assert found["lines"] == len(text)
    assert found["span_bytes"] == sum(path.stat().st_size for path in recorded)
    assert found["log_bytes"] > (bundle.evidence / "event-log.jsonl").stat().st_size
    assert found["lost_lines"] == 0
    costs = [[json.loads(line) for line in path.read_text().splitlines() if '"k":"cost"' in line] for path in recorded]
    last = [lines[-1] for lines in costs if lines]
    assert found["flush_ns"] == sum(line["wall_ns"] for line in last) > sum(line["cpu_ns"] for line in last)
    assert found["flush_cpu_ns"] == sum(line["cpu_ns"] for line in last)
    assert found["left_out"] == 0
    assert 0 < found["chain_spans"] < found["spans"]
    assert found["chain_ns"] == 2_000 * found["chain_spans"]
    assert found["chain_share"] == found["chain_ns"] / run["wall_ns"]
    loop = found["loop"]
    role, _, index = loop["rank"].partition(" ")
    (path,) = {
        path
        for path in recorded
        for line in map(json.loads, path.read_text().splitlines())
        if line["k"] == "process" and (line["role"], str(line["index"])) == (role, index)
    }
    mine = [json.loads(line) for line in path.read_text().splitlines()]
    first, last = (next(line["t"] for line in mine if line.get("n") == n) for n in ("first batch", "last step done"))
    assert loop["length_ns"] == last - first
    assert loop["spans"] == sum(line["k"] in ("b", "s") and first <= line["t"] < last for line in mine) > 50
    assert loop["ns"] == 2_000 * loop["spans"]
    assert 0 < loop["length_ns"] <= run["metrics"]["training_ns"]
    assert verify(bundle).failed == []


def test_an_unmeasured_overhead_is_null_and_a_changed_one_is_found(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, None)
    run = recomputed(bundle)
    assert run["overhead"] is None
    assert verify(bundle).failed == []
    bundle = bundle_of(tmp_path / "on")
    run = recomputed(bundle)
    run["overhead"]["loop"]["ns"] //= 2
    bundle.write(run)
    bundle.seal()
    (wrong,) = [answer for answer in verify(bundle).answers if not answer.ok]
    assert "overhead.loop.ns" in wrong.detail


def test_costs_of_all_recorders_are_summed(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path)
    first, second, *_ = paths = sorted(bundle.spans.rglob("spans-*.jsonl"))
    for path in paths:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if '"k":"cost"' not in line))
    for path, counts in ((first, (1, 2, 3, 4, 50, 60, 7, 8)), (second, (1, 2, 3, 4, 500, 600, 70, 80))):
        line = {"k": "cost", **dict(zip(tracing.Cost.__dataclass_fields__, counts, strict=True))}
        path.write_text(path.read_text() + json.dumps(line) + "\n")
    run = recomputed(bundle)
    found = run["overhead"]
    assert (found["flush_ns"], found["flush_cpu_ns"], found["left_out"], found["lost_lines"]) == (550, 660, 88, 77)
    assert "77 lines of span files are lost: they could not be written to disk" in run["warnings"]


def test_lost_lines_in_stderr_are_counted(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, None)
    stderr = next(bundle.logs.glob("containers/*/stderr"))
    said = "dlobd: {} lines of spans of process {} are lost {}\n"
    words = [(4, 7, "so far: [Errno 28] No space left on device"), (30, 7, "in all"), (5, 8, "so far: x")]
    with stderr.open("a") as file:
        file.writelines(said.format(*word) for word in words)
    assert "35 lines of span files are lost: they could not be written to disk" in recomputed(bundle)["warnings"]


def test_too_much_is_a_warning(tmp_path: Path) -> None:
    run = recomputed(bundle_of(tmp_path))
    assert not [line for line in run["warnings"] if "recording" in line]
    found = run["overhead"]
    dear = found["loop"]["length_ns"] * 2 // 100 // found["loop"]["spans"]
    bundle = bundle_of(tmp_path / "dear", ON | {"span_ns": dear})
    (warning,) = [line for line in recomputed(bundle)["warnings"] if "recording" in line]
    assert re.fullmatch(
        r"recording took about 2\.0 % of the training loop of (chief|worker) 0; the limit is 1 %", warning
    )


def test_a_run_without_recorder_has_a_warning(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, {"recording": "off", "span_ns": None})
    shutil.rmtree(bundle.spans)
    run = recomputed(bundle)
    found = run["overhead"]
    assert (found["recording"], found["spans"], found["chain_ns"], found["loop"]) == ("off", 0, None, None)
    assert sum(layer["ns"] for layer in run["layers"]) + run["unattributed_ns"] == run["wall_ns"]
    assert any(line.startswith("recording was off") for line in run["warnings"])


def test_only_spans_in_the_stretches_of_their_own_lane_are_on_the_chain() -> None:
    spans = assemble(Evidence(DATA / "quick-run")).spans
    own = [span for span in spans if span.source == "own mark"]
    lane = own[0].lane
    start_ns = min(span.start_ns for span in own)
    end_ns = max(span.end_ns for span in own) + 1

    def count(until_ns: int) -> int:
        zero = np.zeros(1, np.int64)
        segments = Segments(zero + start_ns, zero + until_ns, zero, zero, zero, zero, spans, [("client", lane)])
        return recording_cost.overhead(evidence, spans, segments, 1).chain_spans

    evidence = Evidence(DATA / "quick-run")
    evidence.__dict__["span_cost"] = ON
    assert count(end_ns) == sum(span.lane == lane for span in own)
    assert count(own[0].start_ns + 1) == sum(span.lane == lane and span.start_ns <= own[0].start_ns for span in own)
    assert count(start_ns) == 0


def test_the_cost_of_a_span_is_measured_without_leaving_files(tmp_path: Path) -> None:
    known = span_cost.evidence(tmp_path)
    assert known["recording"] == "on"
    assert 0 < known["lowest_ns"] <= known["span_ns"] <= known["highest_ns"]
    found = span_cost.measured(tmp_path, 400, 5)
    assert found["on"][0] > found["off"][0]
    assert len(found["on"]) == 5
    assert list(tmp_path.iterdir()) == []


def test_summed_steps_reach_every_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dlobd.run.place.base import kind_of

    script = tmp_path / "job.py"
    script.write_text("")
    for every in (1, 7):
        setting = f"record_every_steps={every}"
        own = from_script(str(script), (), [setting])
        for experiment in (
            own,
            load("softmax-mnist-quick", [setting]),
            load("softmax-mnist-quick", [setting, "launcher=native", "input=read"]),
        ):
            _, target = kind_of(experiment).planned(experiment, None)
            monkeypatch.delenv(tracing.SWITCH, raising=False)
            command = submit_command.command_of(experiment, target, tmp_path)
            assert command.environment.get(tracing.EVERY) == ("7" if every > 1 else None)
            added = {word for word in command.argv if tracing.EVERY in word}
            conf = {f"spark.{name}.{tracing.EVERY}=7" for name in ("executorEnv", "yarn.appMasterEnv")}
            assert added == (conf if every > 1 and target else set())
            monkeypatch.setenv(tracing.SWITCH, "off")
            command = submit_command.command_of(experiment, target, tmp_path)
            assert tracing.EVERY not in " ".join([*command.argv, *command.environment])


def test_a_switch_that_is_off_reaches_every_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dlobd.run.place.base import kind_of

    for experiment in (load("softmax-mnist-quick"), load("softmax-mnist-quick", ["deploy_mode=cluster"])):
        _, target = kind_of(experiment).planned(experiment, None)
        monkeypatch.delenv(tracing.SWITCH, raising=False)
        on = submit_command.command_of(experiment, target, tmp_path)
        assert tracing.SWITCH not in " ".join([*on.argv, *on.environment])
        monkeypatch.setenv(tracing.SWITCH, "off")
        off = submit_command.command_of(experiment, target, tmp_path)
        kept, changed = ({n: v for n, v in c.environment.items() if n != "SPARK_SUBMIT_OPTS"} for c in (on, off))
        assert changed == {**kept, "DLOBD_TRACE": "off"}
        added = {word for word in set(off.argv) - set(on.argv) if "-Xlog:" not in word}
        assert added == {"spark.executorEnv.DLOBD_TRACE=off", "spark.yarn.appMasterEnv.DLOBD_TRACE=off"}
        # nor does any JVM write the lines that only an analysis needs
        for command, told in ((on, True), (off, False)):
            jvms = [word for word in (*command.argv, *command.environment.values()) if "-Xlog:" in word]
            assert {("startuptime" in word, "-Drpc.log.level=off" in word) for word in jvms} == {(told, not told)}
            assert len(jvms) >= 3
        assert "${sys:rpc.log.level:-trace}" in (shipped("yarn") / "base" / "log4j2-evidence.properties").read_text()
        assert span_cost.evidence(tmp_path) == {"recording": "off", "span_ns": None}

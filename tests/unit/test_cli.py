import contextlib
import dataclasses
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dlobd
import dlobd.run
from dlobd import cli, errors, paths
from dlobd.bundle import store
from dlobd.hadoop.embedded.state import ClusterState, write_state
from dlobd.process_id import ProcessId, identify
from dlobd.tracing import clock
from tests.records import layer_row, run_record

Result = tuple[int, str, str]
Command = Callable[..., Result]


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache with a short path, because socket names are limited."""
    path = tmp_path_factory.mktemp("c")
    monkeypatch.setenv("DLOBD_CACHE", str(path))
    return path


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """Yield a function that runs a command line in an empty directory: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def run(*argv: str) -> Result:
        code = cli.main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def bundle(tmp_path: Path) -> store.Bundle:
    bundle = store.create(tmp_path / "runs", "softmax-mnist")
    bundle.write(run_record(bundle.run_id))
    bundle.seal()
    return bundle


def _stand_in_runner(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> list[Any]:
    """Replace the runner by one that returns a bundle or raises; cluster tests run the real one."""
    calls: list[Any] = []
    runner = ModuleType("dlobd.run.runner")

    def run(experiment: Any, out: Path, progress: Callable[[str], None], elsewhere: Any, observer: Any) -> Path:
        calls.append((experiment, out))
        progress("working")
        observer.output("  the script says hello")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    runner.run = run  # type: ignore[attr-defined]
    runner.plan = lambda experiment, elsewhere: [f"plan {experiment.name}", "spark-submit"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dlobd.run.runner", runner)
    monkeypatch.setattr(dlobd.run, "runner", runner, raising=False)
    return calls


def _stand_in_series(monkeypatch: pytest.MonkeyPatch, record_of: Callable[[Any, str], dict[str, Any]]) -> None:
    """Replace each run of a series by a bundle with the record that `record_of(experiment, run_id)` returns."""
    from dlobd.run import runner, series_runner

    def run(experiment: Any, out: Path, progress: Any, running: Any, observer: Any) -> Path:
        bundle = store.create(out, experiment.name)
        observer.created(bundle)
        bundle.write(record_of(experiment, bundle.run_id))
        bundle.seal()
        return bundle.path

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(series_runner, "LOOK_S", 0.01)
    monkeypatch.setattr(series_runner, "settled_busy_percent", lambda: 0.0)  # the machine may be busy


DEAD = ProcessId(2**22 - 1, 1)
NATIVE = ("--set", "launcher=native", "--set", "scheduler=none", "--set", "input=read")


def test_version_and_help(command: Command) -> None:
    assert command("--version") == command("-V") == (0, f"dlobd {dlobd.__version__}\n", "")
    assert command("show", "-h") == command("show", "--help")
    assert command("-h") == command("--help")
    code, out, _ = command("--help")
    assert code == 0
    for name in ("run", "show", "trace", "list", "clean", "cluster"):
        assert re.search(rf"\b{name}\b", out)
    code, out, err = command()
    assert (code, err) == (2, "")
    assert "Usage" in out


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        (["runn"], 2, "dlobd: No such command 'runn'. Did you mean 'run'? Next: dlobd --help"),
        (
            ["run", "--sett", "a=b"],
            2,
            "dlobd: No such option: --sett (Possible options: --set). Next: dlobd run --help",
        ),
        (["show", "--conf", "a=b"], 2, "dlobd: No such option: --conf. Next: dlobd show --help"),
        (["cluster", "up", "--hadoop"], 2, "dlobd: No such option: --hadoop. Next: dlobd cluster up --help"),
        (["run", "softmax-mnst"], 2, "dlobd: Unknown experiment 'softmax-mnst'; did you mean 'softmax-mnist"),
        (["run", "nope.toml"], 2, "dlobd: experiment file nope.toml does not exist."),
        (["run", "--set", "workers=x"], 2, "dlobd: --set workers=x: workers must be an integer, not 'x'."),
        (["list", "modls"], 2, "dlobd: Unknown list 'modls'; did you mean 'models'?"),
        (["show"], 7, "dlobd: there is no run in /"),
        (["show", "1999"], 7, "dlobd: there is no run 1999 in /"),
        (["show", "/etc/hostname"], 7, "dlobd: /etc/hostname is not a bundle: it has no run.json. Next: name a bundle"),
        (["show", "."], 7, "dlobd: . is not a bundle: it has no run.json."),
        (["show", "series-0.json"], 7, "dlobd: series-0.json cannot be read:"),
        (["report", "--out", "a.html"], 2, "dlobd: --out a.html: there is no such directory of runs. Next: name an "),
        (["trace", "latest"], 7, "dlobd: there is no run in /"),
        (["cluster", "status"], 4, "dlobd: No cluster is running in"),
    ],
)
def test_a_mistake_is_one_line_and_its_exit_code(command: Command, argv: list[str], code: int, line: str) -> None:
    got_code, out, err = command(*argv)
    assert (got_code, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(line)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SetupError("No Java 17.", "install one"), 3),
        (errors.ClusterError("HDFS did not start."), 4),
        (errors.Busy("Another dlobd command runs."), 8),
        (KeyboardInterrupt(), 130),
    ],
)
def test_expected_failures_of_a_run(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    _stand_in_runner(monkeypatch, error)
    got_code, out, err = command("run")
    expected = error.line if isinstance(error, errors.DlobdError) else "interrupted."
    assert (got_code, out) == (code, "")
    assert err.splitlines()[-1] == f"dlobd: {expected}"
    assert "Traceback" not in err


def test_an_unexpected_failure_keeps_its_traceback_in_a_file(
    command: Command, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    _stand_in_runner(monkeypatch, ZeroDivisionError("token=abc"))
    code, _, err = command("run")
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith("dlobd: unexpected failure: ZeroDivisionError")
    path = Path(last.rsplit(" ", 1)[1])
    assert cache in path.parents
    text = path.read_text()
    assert "Traceback" in text
    assert "abc" not in text


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("failed", 5), ("invalid", 6), ("interrupted", 130)])
def test_run_shows_the_breakdown_and_ends_with_the_bundle(
    command: Command, monkeypatch: pytest.MonkeyPatch, bundle: store.Bundle, status: str, code: int
) -> None:
    cause = None if status == "ok" else "rank 1 was killed"
    bundle.write(run_record(bundle.run_id, status=status, reason=cause))
    calls = _stand_in_runner(monkeypatch, bundle.path)
    got_code, out, err = command("run", "softmax-mnist-quick", "--set", "seed=5", "--out", "elsewhere")
    assert got_code == code
    assert "\n    |   the script says hello\n" in err
    assert out.splitlines()[-1] == f"bundle: {bundle.path}"
    assert "TensorFlow" in out
    assert (f"dlobd: run {status}: rank 1 was killed" in err) == (status != "ok")
    ((experiment, where),) = calls
    assert (experiment.name, experiment.seed, where) == ("softmax-mnist-quick", 5, Path("elsewhere"))


def test_show_computes_the_cost_of_a_run(command: Command, bundle: store.Bundle) -> None:
    code, out, _ = command("show", str(bundle.path), "--price-per-hour", "7200")
    assert code == 0
    assert f"{bundle.run_id} --full\n" in out
    assert ["run", "2", "1.000"] in [line.split() for line in out.splitlines()]
    for words in (("--price-per-hour", "-1"), ("--json", "--price-per-hour", "7200")):
        code, out, err = command("show", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)


def test_dry_run_prints_the_plan_only(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _stand_in_runner(monkeypatch, AssertionError("was run"))
    assert command("run", "--dry-run") == (0, "plan softmax-mnist\nspark-submit\n", "")
    assert calls == []


def test_several_experiments_or_repeats_are_a_series(command: Command) -> None:
    code, out, err = command("run", "softmax-mnist", "softmax-mnist-quick", "--repeats", "2", "--dry-run")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert [line[:3] for line in lines] == [[str(n), "repeat", str((n + 1) // 2)] for n in (1, 2, 3, 4)]
    assert sorted(line[3] for line in lines[:2]) == ["softmax-mnist", "softmax-mnist-quick"]
    code, _, err = command("run", "softmax-mnist", "softmax-mnist", "--dry-run")
    assert code == 2
    assert err.startswith("dlobd: Two of the experiments have the same name.")
    assert not Path("runs").exists()


def test_a_series_ends_with_the_exit_code_of_its_worst_run(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = ["ok", "failed", "ok"]

    def record_of(experiment: Any, run_id: str) -> dict[str, Any]:
        status = statuses.pop(0)
        return run_record(run_id, status=status, reason=None if status == "ok" else "a rank died")

    _stand_in_series(monkeypatch, record_of)
    words = ("run", "softmax-mnist", *NATIVE, "--repeats", "3")
    code, out, err = command(*words)
    assert code == 5
    assert "softmax-mnist  2/3" in out
    assert "a rank died" in out
    assert out.splitlines()[-1].startswith("series: runs/series-")
    assert "run 3 of 3: softmax-mnist ok" in err
    assert command(*words)[:2] == (5, out)
    series = out.splitlines()[-1].removeprefix("series: ")
    assert command("show", series) == (0, out, "")
    assert command("show", f"{series}:softmax-mnist")[1] == out
    assert [row["status"] for row in json.loads(command("show", series, "--json")[1])] == ["ok", "failed", "ok"]
    assert command("show", series, "--full")[0] == 2
    assert "has no point 'x'" in command("show", f"{series}:x")[2]


@pytest.mark.parametrize(("changed", "said"), [(False, "slower"), (True, "Not compared: The runs are from different")])
def test_several_experiments_end_with_their_comparison(
    command: Command, monkeypatch: pytest.MonkeyPatch, changed: bool, said: str
) -> None:
    def record_of(experiment: Any, run_id: str) -> dict[str, Any]:
        quick = experiment.name == "softmax-mnist-quick"
        ns = int(run_id[-4:], 16) + (3 if quick else 2) * 10**9
        more = {"versions": {"java": "21" if quick and changed else "17"}, "unattributed_ns": 0, "wall_ns": ns}
        layers = [layer_row("spark", "Spark", ns)]
        return run_record(run_id, configuration=dataclasses.asdict(experiment), layers=layers, **more)

    _stand_in_series(monkeypatch, record_of)
    code, out, _ = command("run", "softmax-mnist", "softmax-mnist-quick", *NATIVE, "--repeats", "6")
    assert code == 0
    assert said in out
    assert ("softmax-mnist-quick against softmax-mnist: 6 repeats" in out) == (not changed)


SWEEP = 'extends = "softmax-mnist-quick"\ninput = "read"\n[axes]\nworkers = [1, 7]\nlauncher = ["native"]\n'


def test_a_sweep_lists_every_impossible_combination(command: Command) -> None:
    Path("s.toml").write_text(SWEEP)
    code, out, err = command("sweep", "s.toml", "--dry-run")
    assert (code, out) == (2, "")
    *told, last = err.splitlines()
    assert "impossible: workers=7: " in told[-1]
    assert "train_samples 6000 is not a multiple of workers x batch_size = 700" in told[-1]
    assert last.startswith("dlobd: 1 of 2 combinations of the axes are impossible.")
    Path("s.toml").write_text(f"{SWEEP}[sweep]\nskip_impossible = true\n")
    code, out, err = command("sweep", "s.toml", "--dry-run", "--repeats", "2")
    assert (code, out) == (0, "   1  repeat 1  workers=1\n   2  repeat 2  workers=1\n")
    assert "skipped: workers=7: " in err
    code, _, err = command("sweep", "s.toml", "--dry-run", "--hadoop-conf", "conf")
    assert code == 2
    assert "skipped: workers=1: --hadoop-conf needs scheduler = yarn" in err
    assert err.splitlines()[-1].startswith("dlobd: 2 of 2 combinations of the axes are impossible.")
    assert not Path("runs").exists()


def test_a_sweep_ends_with_its_table_its_frame_and_its_file(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def record_of(experiment: Any, run_id: str) -> dict[str, Any]:
        made.append(experiment.workers)
        return run_record(run_id, status="invalid" if experiment.workers == 2 else "ok")

    _stand_in_series(monkeypatch, record_of)
    Path("s.toml").write_text(SWEEP.replace("7", "2"))
    code, out, err = command("sweep", "s.toml", "--seed", "3")
    assert (code, sorted(made)) == (6, [1, 2])
    lines = out.splitlines()
    assert any(line.split()[:3] == ["workers=1", "1/1", "1.000"] for line in lines)
    assert any(line.split()[:2] == ["workers=2", "0/1"] for line in lines)
    assert lines[-1].startswith("series: runs/series-")
    (frame,) = Path("runs").glob("sweep-*.csv")
    assert f"frame: {frame}" in lines
    assert "run 2 of 2: workers=" in err
    assert command("sweep", "s.toml", "--seed", "3")[:2] == (6, out)
    assert len(made) == 2


def test_show_prints_a_run_its_views_and_its_record(command: Command, bundle: store.Bundle) -> None:
    code, out, err = command("show", "latest")
    assert (code, err) == (0, "")
    assert "Spark" in out
    assert out.splitlines()[-1] == f"bundle: {bundle.path}"
    bundle.add_bytes(b"x", "logs/new")
    code, _, err = command("show", bundle.run_id)
    what = f"{bundle.path} differs from its hashes: logs/new: not in hashes."
    assert (code, err) == (0, f"dlobd: warning: {what} Next: dlobd verify runs/softmax-mnist/{bundle.run_id}\n")
    code, out, _ = command("show", str(bundle.path), "--view", "anatomy")
    assert code == 0
    assert "Start-up" in out
    assert "Where the wall time went" not in out
    code, _, err = command("show", str(bundle.path), "--view", "anatomie")
    assert (code, "did you mean 'anatomy'?" in err) == (2, True)
    code, out, err = command("show", str(bundle.path), "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert record == bundle.read_json()
    store.validate(record, "stdout")


def test_list_shows_every_axis_and_its_members(command: Command) -> None:
    code, text, _ = command("list")
    assert code == 0
    members = json.loads(command("list", "--json")[1])
    assert {"experiments", "models", "datasets", "launchers", "schedulers", "channels", "exchanges", "inputs"} <= set(
        members
    )
    for kind, rows in members.items():
        assert f"{kind}\n" in text
        for row in rows:
            assert row["name"] in text
            assert row["title"] in text
    assert json.loads(command("list", "models", "--json")[1]) == {"models": members["models"]}


def _fill(cache: Path) -> None:
    for name in ("jars/a.jar", "cluster/hdfs/block", "mine/precious"):
        path = cache / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 100_000)


def test_clean_lists_without_removing(command: Command, bundle: store.Bundle, cache: Path) -> None:
    _fill(cache)
    code, out, err = command("clean")
    assert (code, err) == (0, "")
    assert [line.split()[2] for line in out.splitlines()] == ["jars", "cluster", "runs"]
    assert all(float(line.split()[0]) >= 0 for line in out.splitlines())
    assert bundle.path.exists()
    assert (cache / "jars" / "a.jar").exists()


def test_clean_removes_the_cache_and_only_on_demand_the_runs(
    command: Command, bundle: store.Bundle, tmp_path: Path, cache: Path
) -> None:
    _fill(cache)
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    injected = tmp_path / "runs" / "selftest" / "injected"
    injected.mkdir(parents=True)
    (injected / "truth.jsonl").write_text("{}")
    assert command("clean", "--yes")[0] == 0
    assert injected.exists(), "a self-test's bundles are somebody's runs"
    assert sorted(path.name for path in cache.iterdir()) == [".lock", "mine"]
    assert bundle.path.exists()
    (tmp_path / "runs" / "series-0123456789ab.json").write_text("{}")
    (tmp_path / "runs" / "sweep-0123456789ab.csv").write_text("")
    assert command("clean", "--yes", "--runs")[0] == 0
    assert not bundle.path.exists()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["notes.txt"]
    assert command("clean") == (0, "dlobd keeps no files on this machine\n", "")


def test_clean_leaves_a_running_cluster_alone(command: Command, cache: Path) -> None:
    _fill(cache)
    ourselves = identify(os.getpid())
    assert ourselves is not None
    nowhere = ClusterState(clock.domain(), "3.5.0", "/java", "17", "test", True, True, None, 0.0, ())
    write_state(cache / "cluster", dataclasses.replace(nowhere, processes={"namenode": ourselves}))
    code, _, err = command("clean", "--yes")
    assert code == 8
    assert "a cluster is running in" in err
    assert "Next: dlobd cluster down" in err
    assert (cache / "cluster" / "hdfs" / "block").exists()
    assert (cache / "jars" / "a.jar").exists()


def test_clean_removes_nothing_while_a_command_uses_the_cache(command: Command, cache: Path) -> None:
    _fill(cache)
    with paths.locked(cache / "jars" / ".lock"):
        code, out, err = command("clean", "--yes")
    assert (code, out) == (8, "")
    assert err == f"dlobd: Another dlobd command is using {cache}. Next: wait for it to finish, or stop it\n"
    assert (cache / "jars" / "a.jar").exists()
    assert command("clean", "--yes")[0] == 0
    assert not (cache / "jars").exists()


def test_clean_removes_only_the_links_of_its_own_cache(
    command: Command, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = paths.plain(tmp_path / "a b")
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "other"))
    other = paths.plain(tmp_path / "a b")
    assert command("clean", "--yes")[0] == 0
    assert own.is_symlink()
    assert not other.is_symlink()


def test_clean_keeps_the_bundle_of_a_running_run(command: Command, bundle: store.Bundle) -> None:
    bundle.write(running(bundle.run_id))
    code, out, err = command("clean", "--yes", "--runs")
    assert (code, out) == (8, "")
    assert err.startswith(f"dlobd: run {bundle.run_id} has not ended (pid {os.getpid()}).")
    assert bundle.path.exists()


def running(run_id: str, process: ProcessId | None = None, **changes: Any) -> dict[str, Any]:
    """The record of a run of this process, or of another, that has been submitted."""
    process = process or identify(os.getpid())
    assert process is not None
    owner = {"pid": process.pid, "start_ticks": process.start_ticks, "domain": clock.domain()}
    none = {"window": None, "wall_ns": None, "layers": [], "unattributed_ns": None, "findings": []}
    return run_record(run_id, status="running", process=owner, **(none | changes))


def test_a_running_run_is_shown_as_running_and_is_not_the_latest(
    command: Command, bundle: store.Bundle, tmp_path: Path
) -> None:
    other = store.create(tmp_path / "runs", "softmax-mnist", datetime(2099, 1, 1, tzinfo=UTC))
    note = f"dlobd: run {other.run_id} has not finished; latest is {bundle.run_id}\n"
    for record in (None, running(other.run_id), running(other.run_id, DEAD, command=[])):
        if record:
            other.write(record)
        code, out, err = command("show", "latest")
        assert (code, err) == (0, note)
        assert out.splitlines()[-1] == f"bundle: {bundle.path}"
    other.write(running(other.run_id))
    code, out, err = command("show", other.run_id)
    assert code == 0
    assert f"The run has not finished (pid {os.getpid()} on " in out
    assert err == ""
    (bundle.path / "run.json").unlink()
    code, _, err = command("show")
    assert code == 7
    assert re.fullmatch(rf"dlobd: no run in {tmp_path}/runs has finished\. Next: dlobd show \S+\n", err)


def test_a_killed_run_is_interrupted(command: Command, bundle: store.Bundle) -> None:
    bundle.write(running(bundle.run_id, DEAD))
    assert bundle.read().status == "interrupted"
    assert (
        json.loads(command("show", "--json")[1])["reason"]
        == f"dlobd (pid {DEAD.pid}) was killed while the job was running"
    )


def test_a_run_on_another_machine_stays_running(bundle: store.Bundle) -> None:
    record = running(bundle.run_id, DEAD)
    record["process"]["domain"] = "elsewhere/boot/time:[1]"
    bundle.write(record)
    assert bundle.read().status == "running"
    record["process"]["domain"] = "/".join([clock.host_name(), "another boot", "time:[1]"])
    bundle.write(record)
    assert bundle.read().status == "interrupted"


def test_clean_does_not_follow_a_link(command: Command, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("mine")
    (cache / "jars").symlink_to(tmp_path / "elsewhere")
    code, _, err = command("clean", "--yes")
    assert code == 3
    assert "is a symbolic link" in err
    assert (tmp_path / "elsewhere" / "precious").exists()


def test_progress_on_a_terminal_moves_and_leaves_a_line_a_step(tmp_path: Path) -> None:
    from dlobd.run.progress import Progress

    ours, theirs = os.openpty()
    with open(theirs, "w") as stream, Progress(stream) as progress:
        progress("staging [train]")
        for done in (0, 50, 100):
            progress(f"jars: {done} of 100 MB")
        progress.keep("run 1 of 1")
    parts = []
    with contextlib.suppress(OSError):  # a pseudo-terminal gives what it has, and an error once all is read
        while part := os.read(ours, 1 << 16):
            parts.append(part)
    os.close(ours)
    seen = b"".join(parts).decode()
    assert "\u2501" in seen, "a bar"
    assert "0:00:00" in seen
    left = re.findall(r"\[ +\d+\.\d s\] ([^\r]+)\r", seen)
    assert left == ["staging [train]", "jars: 0 of 100 MB", "jars: 100 of 100 MB", "run 1 of 1"]
    stream = (tmp_path / "log").open("w")
    stream.close()
    with Progress(stream) as progress:
        progress("nobody reads this")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--by-hand",), "--by-hand needs an external cluster. Next: add --hadoop-conf DIR, or omit --by-hand"),
        (("--by-hand", "--repeats", "2"), "--by-hand prepares a single run. Next: omit --repeats, and name one"),
        (("softmax-mnist-quick", "--by-hand"), "--by-hand prepares a single run."),
    ],
)
def test_by_hand_is_never_dropped(command: Command, words: tuple[str, ...], line: str) -> None:
    code, out, err = command("run", "softmax-mnist", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"dlobd: {line}")

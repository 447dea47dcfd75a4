"""The options --python, --with and --requirements: the fields of the job, and its command."""

from __future__ import annotations

import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from dlobd import cli, paths
from dlobd.errors import UsageError
from dlobd.experiment import own_job
from dlobd.experiment.job_python import fields_of
from dlobd.job.launchers.failure import with_option
from dlobd.run import runner
from dlobd.run.place.external import ExternalCluster, planned_target
from dlobd.run.submit_command import command_of
from dlobd.schema import OwnJob
from tests.hadoop_conf import write
from tests.unit.test_schedulers import TARGET, _conf, _option


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "job.py").write_text("")
    return str(tmp_path / "job.py")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """An interpreter in a virtual environment: a link, which must not be resolved."""
    path = tmp_path / "venv" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.symlink_to(sys.executable)
    return path


def test_the_options_are_fields_of_the_job(tmp_path: Path, script: str, other: Path) -> None:
    (tmp_path / "more.txt").write_text("six\n")
    (tmp_path / "needs.txt").write_text("-r more.txt\n--constraint=more.txt\npandas>=2\n")
    wheel = tmp_path / "mine-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    fields = fields_of(str(other), ["pyarrow", str(wheel)], tmp_path / "needs.txt")
    job = own_job.from_script(script, [], chosen=fields)
    assert (job.python, job.requirements) == (str(other), str(tmp_path / "needs.txt"))
    assert job.packages == ("pyarrow", f"mine @ {wheel.as_uri()}#sha256={sha256(b'wheel').hexdigest()}")
    (tmp_path / "more.txt").write_text("six==1.17\n")
    assert fields_of(None, (), tmp_path / "needs.txt")["requirements_sha256"] != job.requirements_sha256
    assert own_job.from_line(["spark-submit", script], chosen=fields).python == str(other)
    assert fields_of(sys.executable)["python"] == fields_of()["python"] == ""


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--python", "no-such-python"), "--python no-such-python: there is no such program. Next: --python /usr"),
        (("--with", "."), "--with . is a directory, whose content may change"),
        (("--with=--pre",), "--with --pre is an option"),
        (("--with", "gone-1-py3-none-any.whl"), "--with gone-1-py3-none-any.whl cannot be read: No such file"),
        (("--requirements", "gone.txt"), "--requirements gone.txt cannot be read: No such file"),
        (("--requirements", "editable.txt"), "editable.txt has the editable install '-e ../mine'"),
        (("--requirements", "latin.txt"), "--requirements latin.txt cannot be read: it is not UTF-8"),
        (("--requirements", "outer.txt"), "--requirements gone.txt cannot be read"),
    ],
)
def test_what_cannot_be_installed_is_one_line(
    tmp_path: Path,
    script: str,
    words: tuple[str, ...],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("editable.txt").write_text("six\n -e ../mine\n")
    Path("latin.txt").write_bytes(b"# \xe9\n")
    Path("outer.txt").write_text("-r gone.txt\n")
    for command in (("run", "--job", script, *words), ("submit", *words, "--", "spark-submit", script)):
        assert cli.main([*command]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert what in line


def test_they_are_for_own_scripts(tmp_path: Path, script: str, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "softmax-mnist", "--with", "six"]) == 2
    assert "are for your own script. Next: add --job SCRIPT" in capsys.readouterr().err
    archive = ["--hadoop-conf", str(tmp_path), "--archive", "x.tar.gz"]
    assert cli.main(["run", "--job", script, "--python", str(other), *archive]) == 2
    assert "--archive and --python both name the nodes' Python" in capsys.readouterr().err


def test_a_line_and_a_shell_may_name_the_same_python(script: str, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, notes = fields_of(str(other)), []
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    line = ["spark-submit", "--conf", f"spark.pyspark.python={other}", script]
    own_job.from_line(line, note=notes.append, chosen=chosen)
    assert [note for note in notes if "PYSPARK_PYTHON" in note] == []
    with pytest.raises(UsageError, match=f"Next: omit it, and use dlobd's option --python {other}"):
        own_job.from_line(line)
    with pytest.raises(UsageError, match=f"python={sys.executable} is not supported"):
        own_job.from_line([*line[:2], f"spark.pyspark.python={sys.executable}", script], chosen=chosen)


def job_of(script: str, *settings: str, **chosen: object) -> OwnJob:
    return replace(own_job.from_script(script, [], settings), **chosen)  # type: ignore[arg-type]


HERE = Path("/c/packages/0123/lib")


@pytest.mark.parametrize("scheduler", ["yarn", "standalone", "local-cluster"])
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_packages_are_on_the_path_of_every_process(script: str, tmp_path: Path, scheduler: str, mode: str) -> None:
    if scheduler != "yarn" and mode == "cluster":
        return
    job = job_of(script, f"scheduler={scheduler}", f"deploy_mode={mode}")
    command = command_of(job, TARGET, tmp_path, HERE)
    conf, path = _conf(command), str(HERE)
    assert conf["spark.executorEnv.PYTHONPATH"] == command.environment["PYTHONPATH"] == path
    assert conf.get("spark.yarn.appMasterEnv.PYTHONPATH") == (path if mode == "cluster" else None)
    assert "spark.yarn.dist.archives" not in conf
    assert "PYTHONPATH" not in " ".join(command_of(job, TARGET, tmp_path).argv)


@pytest.mark.parametrize("scheduler", ["yarn", "standalone"])
def test_another_python_finds_only_dlobd_beside_its_own(
    script: str, tmp_path: Path, other: Path, scheduler: str
) -> None:
    command = command_of(job_of(script, f"scheduler={scheduler}", python=str(other)), TARGET, tmp_path, HERE)
    conf = _conf(command)
    assert conf["spark.pyspark.python"] == command.environment["PYSPARK_PYTHON"] == str(other)
    packages, modules = conf["spark.executorEnv.PYTHONPATH"].split(":")
    assert packages == str(HERE)
    assert [path.resolve() for path in Path(modules).iterdir()] == [paths.PACKAGE]


@pytest.mark.parametrize("users_python", [False, True])
def test_nodes_get_packages_as_an_archive(script: str, tmp_path: Path, other: Path, users_python: bool) -> None:
    chosen = str(other) if users_python else ""
    (tmp_path / "conf").mkdir()
    sites = {"core": {"fs.defaultFS": "hdfs://n:1"}, "yarn": {"yarn.resourcemanager.hostname": "r"}}
    conf_dir = write(tmp_path / "conf", hdfs={"dfs.namenode.http-address": "n:2"}, **sites)
    target = planned_target(ExternalCluster(conf_dir).read(), None, chosen)
    sent = "hdfs://n:1/packages-0123.tar.gz#packages"
    users = ("--conf", "spark.executorEnv.PYTHONPATH=./mine", "--archives", "mine.zip#mine")
    job = job_of(script, "deploy_mode=cluster", python=chosen, options=users)
    command = command_of(job, target, tmp_path, HERE, sent)
    conf = _conf(command)
    assert conf["spark.executorEnv.PYTHONPATH"] == "./mine:./packages"
    assert conf["spark.yarn.appMasterEnv.PYTHONPATH"] == "./packages"
    environment = () if users_python else ("hdfs://n:1<hdfs-home>/dlobd/cache/<environment>#environment",)
    assert conf["spark.yarn.dist.archives"].split(",") == [*environment, sent]
    assert _option(command, "--archives") == "mine.zip#mine"
    assert conf["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] == (chosen or "./environment/bin/python")
    assert _option(command, "--py-files").endswith("<package>")


def test_the_plan_starts_nothing(script: str, tmp_path: Path) -> None:
    plan = runner.plan(own_job.from_script(script, [], chosen=fields_of(None, ["pyarrow", "six"])))
    assert "prepare: install pyarrow six, once" in plan
    assert "spark.executorEnv.PYTHONPATH=" in next(step for step in plan if "spark-submit" in step)


@pytest.mark.parametrize(
    ("cause", "added"),
    [
        (
            "PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be.",
            "; --with pyarrow adds it",
        ),
        ("PySparkImportError: [PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be", "; --with pandas adds it"),
        (
            "ModuleNotFoundError: No module named 'a.b'",
            "; --with adds packages, spark-submit's --py-files adds modules",
        ),
        ("ImportError: libx.so: cannot open shared object file", ""),
        ("KeyError: 'no such word'", ""),
    ],
)
def test_a_missing_package_comes_with_the_option(cause: str, added: str) -> None:
    assert with_option(cause) == f"{cause.removesuffix('.')}{added}"

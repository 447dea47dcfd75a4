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
from dlobd.experiment.own_job import fields_of
from dlobd.job.launchers.failure import with_option
from dlobd.run.place.external import ExternalCluster, planned_target
from dlobd.run.submit_command import command_of
from tests.hadoop_conf import write
from tests.unit.test_schedulers import TARGET, _conf, _option

HERE = Path("/c/packages/0123/lib")


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "job.py").write_text("")
    return str(tmp_path / "job.py")


@pytest.fixture
def other(tmp_path: Path) -> str:
    """An interpreter in a virtual environment: a link, which must not be resolved."""
    path = tmp_path / "venv" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.symlink_to(sys.executable)
    return str(path)


def test_the_options_are_fields_of_the_job(tmp_path: Path, script: str, other: str) -> None:
    (tmp_path / "more.txt").write_text("six\n")
    (tmp_path / "needs.txt").write_text("-r more.txt\n--constraint=more.txt\npandas>=2\n")
    wheel = tmp_path / "mine-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    fields = fields_of(other, ["pyarrow", str(wheel)], tmp_path / "needs.txt")
    job = own_job.from_script(script, [], chosen=fields)
    assert (job.python, job.requirements) == (other, str(tmp_path / "needs.txt"))
    assert job.packages == ("pyarrow", f"mine @ {wheel.as_uri()}#sha256={sha256(b'wheel').hexdigest()}")
    (tmp_path / "more.txt").write_text("six==1.17\n")
    assert fields_of(None, (), tmp_path / "needs.txt")["requirements_sha256"] != job.requirements_sha256
    assert fields_of(sys.executable)["python"] == fields_of()["python"] == ""


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--python", "no-such-python"), "--python no-such-python: there is no such program. Next: --python /usr"),
        (("--with", "."), "--with . is a directory, whose content may change"),
        (("--with=--pre",), "--with --pre is an option"),
        (("--with", "gone-1-py3-none-any.whl"), "--with gone-1-py3-none-any.whl cannot be read: No such file"),
        (("--requirements", "editable.txt"), "editable.txt has the editable install '-e ../mine'"),
        (("--requirements", "latin.txt"), "--requirements latin.txt cannot be read: it is not UTF-8"),
        (("--requirements", "outer.txt"), "--requirements gone.txt cannot be read: No such file"),
        (("--python", "sh", "--hadoop-conf", ".", "--archive", "x.tar.gz"), "both name the nodes' Python"),
    ],
)
def test_what_cannot_be_installed_is_one_line(
    tmp_path: Path,
    words: tuple[str, ...],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("editable.txt").write_text("six\n -e ../mine\n")
    Path("latin.txt").write_bytes(b"# \xe9\n")
    Path("outer.txt").write_text("-r gone.txt\n")
    for command in (("run", "--job", "job.py", *words), ("submit", *words, "--", "spark-submit", "job.py")):
        assert cli.main([*command]) == 2
        assert what in capsys.readouterr().err
    assert cli.main(["run", "softmax-mnist", *words]) == 2
    assert "add --job SCRIPT" in capsys.readouterr().err


def test_a_line_and_a_shell_may_name_the_same_python(script: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    line = ["spark-submit", "--conf", f"spark.pyspark.python={other}", script]
    assert own_job.from_line(line, note=notes.append, chosen=fields_of(other)).python == other
    assert [note for note in notes if "PYSPARK_PYTHON" in note] == []
    with pytest.raises(UsageError, match=f"Next: omit it, and use dlobd's option --python {other}"):
        own_job.from_line(line)


@pytest.mark.parametrize("scheduler", ["yarn", "yarn deploy_mode=cluster", "standalone", "local-cluster"])
def test_packages_are_on_the_path_of_every_process(script: str, tmp_path: Path, scheduler: str, other: str) -> None:
    """An interpreter that is not dlobd's finds there also dlobd, but no other package of dlobd's environment."""
    job = own_job.from_script(script, [], f"scheduler={scheduler}".split())
    assert "PYTHONPATH" not in " ".join(command_of(job, TARGET, tmp_path).argv)
    for python in ("", other):
        command = command_of(replace(job, python=python), TARGET, tmp_path, HERE)
        conf = _conf(command)
        path = conf["spark.executorEnv.PYTHONPATH"]
        assert command.environment["PYTHONPATH"] == path
        assert conf.get("spark.yarn.appMasterEnv.PYTHONPATH") == (path if scheduler.endswith("=cluster") else None)
        assert "spark.yarn.dist.archives" not in conf
        assert conf["spark.pyspark.python"] == command.environment["PYSPARK_PYTHON"] == (python or str(paths.python()))
        packages, *modules = path.split(":")
        assert packages == str(HERE)
        found = [entry.resolve() for directory in modules for entry in Path(directory).iterdir()]
        assert found == ([paths.PACKAGE] if python else [])


@pytest.mark.parametrize("users_python", [False, True])
def test_nodes_get_packages_as_an_archive(script: str, tmp_path: Path, other: str, users_python: bool) -> None:
    chosen = other if users_python else ""
    sites = {"core": {"fs.defaultFS": "hdfs://n:1"}, "yarn": {"yarn.resourcemanager.hostname": "r"}}
    conf_dir = write(tmp_path, hdfs={"dfs.namenode.http-address": "n:2"}, **sites)
    target = planned_target(ExternalCluster(conf_dir).read(), None, chosen)
    sent = "hdfs://n:1/packages-0123.tar.gz#packages"
    users = ("--conf", "spark.executorEnv.PYTHONPATH=./mine", "--archives", "mine.zip#mine")
    job = replace(own_job.from_script(script, [], ["deploy_mode=cluster"]), python=chosen, options=users)
    command = command_of(job, target, tmp_path, HERE, sent)
    conf = _conf(command)
    assert conf["spark.executorEnv.PYTHONPATH"] == "./mine:./packages"
    assert conf["spark.yarn.appMasterEnv.PYTHONPATH"] == "./packages"
    environment = () if users_python else ("hdfs://n:1<hdfs-home>/dlobd/cache/<environment>#environment",)
    archives = ["mine.zip#mine", *environment, sent]
    assert _option(command, "--archives").split(",") == archives, "it replaces spark.yarn.dist.archives"
    assert "spark.yarn.dist.archives" not in conf
    job = replace(job, options=("--conf", "spark.archives=mine.zip#mine"))
    assert _option(command_of(job, target, tmp_path, HERE, sent), "--archives").split(",") == archives
    assert conf["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] == (chosen or "./environment/bin/python")
    assert _option(command, "--py-files").endswith("<package>")


@pytest.mark.parametrize(
    ("cause", "added"),
    [
        ("PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be.", "; --with pyarrow adds it"),
        ("PySparkImportError: [PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be", "; --with pandas adds it"),
        (
            "ModuleNotFoundError: No module named 'a'",
            "; --with or another --python adds packages, spark-submit's --py-files adds modules",
        ),
        ("E: [PYTHON_VERSION_MISMATCH] 3.12 and 3.11.", "; --python names the interpreter of driver and nodes"),
        ("ImportError: libx.so: cannot open shared object file", ""),
    ],
)
def test_a_missing_package_comes_with_the_option(cause: str, added: str) -> None:
    assert with_option(cause) == f"{cause.removesuffix('.')}{added}"

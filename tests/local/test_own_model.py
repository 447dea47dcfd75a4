"""A model from the user's own file or another package: found, tried in a process of its own, and loaded by ranks."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlobd.axes import MODELS
from dlobd.errors import SetupError, UsageError
from dlobd.experiment import files
from dlobd.run import own_model, runner, series_runner
from dlobd.user_file import MemberRef, sha256_of
from tests import their_package
from tests.jobs import job
from tests.pages import printed

QUICK = "softmax-mnist-quick"

START = """
import tensorflow as tf

class Net(tf.Module):
    def __init__(self, values, classes):
        super().__init__()
        self.values, self.w = values, tf.Variable(tf.zeros([values, classes]))
    def __call__(self, images, training=False):
        return tf.reshape(images, [-1, self.values]) @ self.w

class Half(Net):
    def __call__(self, images, training=False):
        return tf.cast(super().__call__(images), tf.float16)

class Unused(Net):
    def __init__(self, values, classes):
        super().__init__(values, classes)
        self.spare = tf.Variable(1.0, name="spare")

"""
LINES = START.count("\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _experiment(text: str, **changes: Any) -> files.Experiment:
    Path("net.py").write_text(text)
    return dataclasses.replace(files.load(QUICK, ["model=net.py:build"]), **changes)


def test_an_experiment_holds_the_name_and_the_sha256_of_the_file(here: Path) -> None:
    """By --set and in a file; another content is another experiment, and the same content is the same one."""
    one = _experiment("a = 1")
    assert (one.model, len(one.model_sha256)) == ("net.py:build", 64)
    Path("mine.toml").write_text(f'extends = "{QUICK}"\nmodel = "net.py:build"\nname = "{QUICK}"\n')
    assert files.load("mine.toml") == one
    assert files.key(_experiment("a = 2")) != files.key(one)
    assert _experiment("a = 1") == one
    assert files.load(QUICK).model_sha256 == ""


@pytest.mark.parametrize(
    ("sets", "line"),
    [
        (["model=none.py:build"], "--set model=none.py:build: model none.py cannot be read: No such file"),
        (["model=net.py"], "net.py names no function or class in net.py. Next: net.py:NAME"),
        (["model=net.py:a-b"], "net.py:a-b names no function or class in net.py"),
        (["model=."], "Unknown model '.'"),
        (["model_sha256=" + 64 * "0"], "model_sha256 is computed from the file of model"),
        (["model_sha256=x", "model=net.py:build"], "model_sha256 is computed"),
        (["model=binary.py:build"], "binary.py is not UTF-8 text"),
        (["model=~no-such-user/net.py:build"], "'~no-such-user/net.py' is not the path of a file"),
    ],
)
def test_what_is_no_file_is_said(here: Path, sets: list[str], line: str) -> None:
    Path("net.py").write_text("")
    Path("binary.py").write_bytes(b"\xff\x00")
    with pytest.raises(UsageError) as caught:
        files.load(QUICK, sets)
    assert line in caught.value.line


def test_a_stored_experiment_needs_no_file_until_it_runs(here: Path) -> None:
    """A bundle is verified on another machine. A run compares the file with the sha256, and refuses a changed one."""
    one = _experiment("a = 1")
    Path("net.py").unlink()
    stored = dataclasses.asdict(one)
    assert files.from_dict(stored) == one
    with pytest.raises(UsageError, match=r"net\.py cannot be read"):
        runner.check(one)
    Path("net.py").write_text("a = 2")
    with pytest.raises(UsageError, match=r"net\.py has changed: its sha256 begins with "):
        runner.check(one)
    with pytest.raises(UsageError, match="needs the sha256 of its file"):
        files.from_dict({**stored, "model_sha256": ""})
    with pytest.raises(UsageError, match="is not a file"):
        files.from_dict({**stored, "model": "mlp"})
    assert files.from_dict({**stored, "model": "of-a-package", "model_sha256": ""}).model == "of-a-package"


def test_a_series_looks_at_all_its_models_first(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = _experiment("a = 1")
    Path("net.py").write_text("a = 2")
    monkeypatch.setattr("dlobd.run.series_runner.embedded", None)  # nothing may be asked of it
    opened = series_runner.opened({"mine": one, "main": files.load(QUICK)}, 0, here / "runs")
    told: list[str] = []
    with pytest.raises(UsageError, match=r"1 of 2 points cannot be run"):
        series_runner.run(opened, 2, lambda line: None, told.append)
    assert "net.py has changed" in told[0]
    assert not (here / "runs").exists()


NOT_LOADED = {
    "a = 1\n1 / 0": "net.py, line 2: ZeroDivisionError: division by zero.",
    "def build(:": "net.py, line 1: SyntaxError: invalid syntax.",
    "\nimport no_such_module_beside": "net.py, line 2: ModuleNotFoundError: No module named 'no_such_module_beside'.",
    "def other(): pass\nclass Net: pass": "net.py has no function or class 'build'; it has other, Net.",
    "build = 3": "net.py has no function or class 'build'; it has none.",
    "import sys\nsys.exit()": "net.py, line 2: SystemExit.",
}


@pytest.mark.parametrize("text", NOT_LOADED)
def test_a_file_that_does_not_load_is_one_line(text: str) -> None:
    for _ in range(2):
        with pytest.raises(UsageError) as caught:
            MemberRef("net.py:build").load(sha256_of(text), lambda: text)
        assert NOT_LOADED[text] in caught.value.line


BAD = {
    "import beside": f"net.py, line {LINES + 1}: ModuleNotFoundError: No module named 'beside'.",
    "def build(shape): pass": "net.py: TypeError: build() takes 1 positional argument but 3 were given.",
    "def build(*a):\n    raise ValueError('two\\nlines')": f"net.py, line {LINES + 2}: ValueError: two lines.",
    "def build(*a): return [1]": "returns an object of type list, and a tf.Module is needed.",
    "def build(*a): return tf.Module()": "returns a tf.Module that cannot be called",
    "class None_(tf.Module):\n    def __call__(self, images, training=False): return images\n"
    "def build(*a): return None_()": "model net.py:build has no trainable variables.",
    "def build(shape, classes, seed): return Net(784, 7)": "model net.py:build returns logits of shape (4, 7), and "
    "data set mnist has 10 classes: (4, 10) is needed.",
    "def build(shape, classes, seed): return Net(392, 10)": "model net.py:build returns logits of shape (8, 10), and ",
    "def build(shape, classes, seed): return Half(784, 10)": "returns logits of float16, and float32 is needed.",
    "def build(shape, classes, seed): return Unused(784, 10)": "the loss does not depend on spare:0.",
    "import os\nos._exit(0)": "it ended its process (exit code 0) while loading the file.",
    "import os\ndef build(*a): os.abort()": "it ended its process (signal SIGABRT) while building the model.",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_a_model_is_one_line(here: Path, text: str) -> None:
    (here / "beside.py").write_text("")  # it would not be there on a node
    with pytest.raises(UsageError) as caught:
        own_model.check(_experiment(START + text))
    assert BAD[text] in caught.value.line


@pytest.mark.slow
def test_a_model_that_hangs_is_ended(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_model, "TRIAL_TIMEOUT_S", 15)
    text = "import os, subprocess, time\nopen('pid', 'w').write(str(subprocess.Popen(['sleep', '500']).pid))\n"
    with pytest.raises(UsageError, match="it did not end within 15 s while loading the file"):
        own_model.check(_experiment(text + "time.sleep(500)"))
    child = Path("/proc", Path("pid").read_text(), "stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"


@pytest.mark.slow
def test_the_command_says_it_in_one_line(here: Path) -> None:
    """Also with --dry-run: exit code 2, nothing printed but the line, and no bundle."""
    Path("net.py").write_text(f"{START}\nprint('noise')\ndef build(*a): return Net(784, 7)\n")
    command = (sys.executable, "-m", "dlobd", "run", QUICK, "--set", "model=net.py:build")
    for more in ((), ("--dry-run",)):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=110)
        said = [line for line in done.stderr.splitlines() if not line.startswith("[")]
        assert (done.returncode, done.stdout, len(said)) == (2, "", 1), done
        assert "logits of shape (4, 7), and data set mnist has 10 classes: (4, 10) is needed" in said[0]
    assert not Path("runs").exists()


@pytest.mark.slow
def test_the_file_of_the_page_is_a_model(here: Path) -> None:
    printed("quickstart.md", "net.py", here)
    for dataset in ("mnist", "synthetic"):
        own_model.check(files.load(QUICK, ["model=net.py:build", f"dataset={dataset}"]))


def test_a_rank_builds_the_model_from_the_jobs_storage(here: Path) -> None:
    (here / "run").mkdir()
    text = START + "def build(shape, classes, seed): return Net(784, classes)\n"
    sha256 = sha256_of(text)
    told = job(here, model="far/net.py:build", model_sha256=sha256, image_shape=(28, 28))
    (here / "run" / "model.py").write_text(f"{text}\n")
    with pytest.raises(UsageError, match=r"far/net\.py has changed"):
        told.build_model()
    (here / "run" / "model.py").write_text(text)
    assert told.build_model()(np.zeros((2, 28, 28), np.float32)).shape == (2, 10)
    (here / "run" / "model.py").unlink()
    assert told.build_model().w.shape == (784, 10)


def test_a_traceback_has_the_name_and_the_lines_of_a_file_that_is_not_there() -> None:
    text = "def build():\n    raise KeyError('here')\n"
    build = MemberRef("some/net.py:build").load(sha256_of(text), lambda: text)
    with pytest.raises(KeyError) as caught:
        build()
    shown = "".join(traceback.format_exception(caught.value))
    assert 'File "some/net.py", line 2, in build' in shown
    assert "raise KeyError('here')" in shown


@pytest.mark.slow
def test_a_package_adds_models_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are listed with their package and tried as an own file is; a name of dlobd's own stays dlobd's."""
    points = """
        [dlobd.models]
        theirs = their_package.net:build
        narrow = their_package.net:narrow
        gone = no_such_package_of_theirs.net:build
        lenet = their_package.net:build
        """
    text = START + "def build(s, classes, seed): return Net(784, classes)\ndef narrow(*a): return Net(784, 3)\n"
    their_package.install(tmp_path, points, text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    listed = {row.name: (row.title, row.reason()) for row in MODELS}
    assert listed["theirs"] == ("from package their-package 1.2", None)
    assert listed["gone"][1] == "Python module 'no_such_package_of_theirs' is not installed"
    assert MODELS.row("lenet").package == ""
    own_model.check(files.load(QUICK, ["model=theirs"]))
    with pytest.raises(UsageError, match=r"model narrow returns logits of shape \(4, 3\)"):
        own_model.check(files.load(QUICK, ["model=narrow"]))
    with pytest.raises(SetupError, match="not installed"):
        own_model.check(files.load(QUICK, ["model=gone"]))

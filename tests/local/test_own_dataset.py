"""A data set from the user's own file or another package: what it announces and gives is checked, in one line."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from dlobd.errors import DlobdError, SetupError, UsageError
from dlobd.experiment import files
from dlobd.hadoop.file_system import LocalDirectory
from dlobd.job.datasets.base import dataset_of, layout_of
from dlobd.job.datasets.tfrecord import decode_block
from dlobd.run import data_sets, runner, staging
from dlobd.schema import Experiment
from tests import their_package
from tests.pages import printed

QUICK = "softmax-mnist-quick"
SIZES = ("train_samples=400", "test_samples=100")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with the file that the page prints."""
    monkeypatch.chdir(tmp_path)
    printed("quickstart.md", "stripes.py", tmp_path)
    return tmp_path


def _changed(old: str, new: str) -> None:
    text = Path("stripes.py").read_text()
    assert old in text
    Path("stripes.py").write_text(text.replace(old, new))


def _experiment(*sets: str) -> Experiment:
    return files.load(QUICK, ["dataset=stripes.py:Stripes", *SIZES, *sets])


def _staged(experiment: Experiment, top: Path) -> staging.StagedData:
    return staging.stage(experiment, LocalDirectory(), str(top), lambda line: None)


def test_the_file_of_the_page_is_staged(here: Path) -> None:
    experiment = _experiment()
    staged = _staged(experiment, here / "top")
    dataset = dataset_of(experiment)
    whole, labels = next(iter(dataset.chunks("train", range(4000), 4000)))
    given = {image.tobytes(): label for image, label in zip(whole, labels, strict=True)}
    seen = set()
    for rank in range(2):
        block = Path(staged.train_dir, f"part-0000{rank}.tfrecord").read_bytes()
        images, found = decode_block(block, layout_of(dataset))
        for image, label in zip(np.rint(images * 255).astype(np.uint8), found, strict=True):
            assert given[image.tobytes()] == label
            seen.add(image.tobytes())
    assert len(seen) == 400
    assert set(labels) == set(range(8))
    assert _staged(experiment, here / "top").reused


def test_another_content_is_staged_anew(here: Path) -> None:
    first = staging.directory(_experiment())
    assert staging.directory(_experiment("epochs=3", "launcher=native")) == first
    _changed("return []", 'from pathlib import Path\n        return [Path("data.bin")]')
    without = staging.directory(_experiment())
    Path("data.bin").write_bytes(b"one")
    with_data = staging.directory(_experiment())
    os.utime("data.bin", ns=(1, 1))
    later = staging.directory(_experiment())
    assert len({first, without, with_data, later}) == 4
    assert all("/own-stripes-" in name for name in (first, without, with_data, later))


ANNOUNCED = {
    (
        'dtype, classes = (8, 8), "uint8", 8',
        'dtype, classes = (8, 8), "int64", 8',
    ): "dtype is 'int64', not one of uint8,",
    ('classes = (8, 8), "uint8", 8', 'classes = (8, 8), "uint8", 0'): "classes is 0, not a positive integer",
    ("dtype, classes = (8, 8)", "dtype, classes = [8, 8]"): "shape is [8, 8], not a tuple of positive sizes",
    ("dtype, classes = (8, 8)", "dtype, classes = ()"): "shape is (), not a tuple of positive sizes",
    ("train_size, test_size = 4000, 1000", "train_size = 4000"): "AttributeError: 'Stripes' object has no attribute",
    ("permutes = True", "permutes = 1"): "name must be a string, and permutes must be True or False",
    ("return cls()", "raise KeyError('lost')"): "stripes.py, line 14: KeyError: 'lost'.",
    ("return cls()", "raise ValueError('lost')"): "stripes.py, line 14: ValueError: lost.",
    ("import numpy", "import nmpy"): "stripes.py, line 1: ModuleNotFoundError: No module named 'nmpy'.",
    ("class Stripes", "class Other"): "stripes.py has no function or class 'Stripes'; it has Other.",
    ("train_size, test_size = 4000", "train_size, test_size = 100"): "train_samples 400 exceeds the 100 samples of",
}


@pytest.mark.parametrize("change", ANNOUNCED, ids=range(len(ANNOUNCED)))
def test_what_a_data_set_announces_is_checked(here: Path, change: tuple[str, str]) -> None:
    """When the experiment is read; exit code 2."""
    _changed(*change)
    with pytest.raises(UsageError) as caught:
        _experiment()
    assert ANNOUNCED[change] in caught.value.line
    assert "\n" not in caught.value.line


GIVEN = {
    (
        "yield images, labels",
        "yield images, np.where(np.asarray(positions) == 7, 12, labels)",
    ): "Data set stripes of stripes.py, train sample 7: label 12 is not between 0 and 7.",
    ("yield images, labels", "yield images, labels - 1"): "label -1 is not between 0 and 7",
    ("yield images, labels", "yield images, labels / 2"): "labels are float64 [], not one integer per sample",
    ("yield images, labels", "yield images[:, :4], labels"): "uint8 [4, 8], not uint8 [8, 8]",
    ("yield images, labels", "yield images.astype(int), labels"): "images are int64 [8, 8], not uint8 [8, 8]",
    ("yield images, labels", "yield images, labels[:-1]"): "images have",
    ("yield images, labels", "yield images[:-1], labels[:-1]"): "it yielded 199 samples instead of 200.",
    ("yield images, labels", "yield 3"): "stripes.py: TypeError: cannot unpack",
    ("yield images, labels", "open('lost')"): "stripes.py, line 30: FileNotFoundError:",
}


@pytest.mark.parametrize("change", GIVEN, ids=range(len(GIVEN)))
def test_what_a_data_set_gives_is_checked(here: Path, change: tuple[str, str]) -> None:
    """While it is staged, with file, split, sample and value; nothing says then that the data set is there."""
    _changed("permutes = True", "permutes = False")  # so that the first part has the samples from 0 on
    _changed(*change)
    with pytest.raises(SetupError) as caught:
        _staged(_experiment(), here / "top")
    assert GIVEN[change] in caught.value.line
    assert "stripes.py" in caught.value.line
    assert not list(here.rglob("_SUCCESS"))


def test_files_that_cannot_be_named_are_one_line(here: Path) -> None:
    text = Path("stripes.py").read_text()
    Path("stripes.py").write_text(text + "\n    def files(self):\n        return open('lost')\n")
    with pytest.raises(SetupError, match=r"^Files of data set stripes of stripes\.py: stripes\.py, line \d+: FileNot"):
        _staged(_experiment(), here / "top")


def test_a_stored_experiment_needs_no_file_until_it_runs(here: Path) -> None:
    one = _experiment()
    assert len(one.dataset_sha256) == 64
    _changed("bright row", "brighter row")
    assert files.from_dict(dataclasses.asdict(one)) == one
    assert _experiment().dataset_sha256 != one.dataset_sha256
    Path("stripes.py").unlink()
    assert files.from_dict(dataclasses.asdict(one)) == one


def test_a_changed_file_is_refused(here: Path) -> None:
    _changed("bright row", "bright row of eight")
    one = _experiment()
    changed = dataclasses.replace(one, dataset_sha256="0" * 64)
    with pytest.raises(UsageError, match=r"stripes\.py has changed: its sha256 begins with"):
        runner.check(changed)


def test_a_package_adds_data_sets_by_entry_points(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are listed, found and staged by the package's version; one that raises is one line wherever it is named."""
    points = """
        [dlobd.datasets]
        theirs = their_package.net:Stripes
        broken = their_package.broken:Stripes
        """
    their_package.install(here, points, Path("stripes.py").read_text())
    (here / "their_package" / "broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(here))
    experiment = files.load(QUICK, ["dataset=theirs", *SIZES])
    assert experiment.dataset_sha256 == ""
    assert dataset_of(experiment).name == "stripes"
    first = staging.directory(experiment)
    (here / "their_package-1.2.dist-info").rename(here / "their_package-1.3.dist-info")
    info = here / "their_package-1.3.dist-info" / "METADATA"
    info.write_text(info.read_text().replace("1.2", "1.3"))
    assert staging.directory(experiment) != first
    with pytest.raises(DlobdError, match=r"package their-package 1\.3 cannot be imported: ZeroDivisionError"):
        files.load(QUICK, ["dataset=broken", *SIZES])
    found = {one.name: one for one in data_sets.local()}
    assert found["theirs"].state == "generated"
    assert "ZeroDivisionError" in found["broken"].why

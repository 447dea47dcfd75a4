"""What travels to nodes that have nothing of ours."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from dlobd.errors import UsageError
from dlobd.run import packing


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_CACHE", str(tmp_path / "cache"))


def unpacked(tarball: packing.Tarball, to: Path) -> Path:
    """The tarball as `tar`, which NodeManagers use, unpacks it."""
    to.mkdir()
    subprocess.run(["tar", "-x", "-C", to], input=b"".join(tarball.chunks()), check=True)
    return to


def test_a_tarball_is_what_tar_reads(tmp_path: Path) -> None:
    """Empty and large files, long names, links, and scripts that can be run."""
    source = tmp_path / "source"
    files = {}
    for name, data in {
        "empty": b"",
        "block": b"x" * 512,
        "large": bytes(range(256)) * 9000,
        "ü" + "d" * 150 + "/n": b"1",
    }.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        files[f"lib/{name}"] = path
    (source / "link").symlink_to("block")
    (source / "same").hardlink_to(source / "large")
    files |= {"lib/link": source / "link", "lib/same": source / "same"}
    tarball = packing.Tarball("a.tar", files, {"bin/hello": "#!/bin/sh\necho hello\n"})
    top = unpacked(tarball, tmp_path / "out")
    for name, path in files.items():
        assert (top / name).read_bytes() == path.read_bytes(), name
    assert (top / "lib" / "link").is_symlink()
    assert subprocess.check_output([top / "bin" / "hello"]) == b"hello\n"


def test_the_environment_holds_packages_and_not_what_travels_apart() -> None:
    """TensorFlow and compiled libraries are in it; dlobd, pyspark and headers are not; equal content, equal name."""
    tarball = packing.environment()
    site = f"lib/{packing.PYTHON}/site-packages/"
    assert f"{site}tensorflow/__init__.py" in tarball.files
    assert f"{site}numpy/__init__.py" in tarball.files
    assert any(name.endswith(".so") for name in tarball.files)
    left_out = ("dlobd", "pyspark/", "__editable__", "tensorflow/include/")
    assert [name for name in tarball.files if name.removeprefix(site).startswith(left_out)] == []
    assert packing.environment().name == tarball.name


def test_the_environments_python_runs_with_its_packages(tmp_path: Path) -> None:
    """bin/python is the node's interpreter, which finds the packages beside it and, before them, what Spark adds."""
    module = tmp_path / "only_here.py"
    module.write_text("WHERE = __file__\n")
    whole = packing.environment()
    site = f"lib/{packing.PYTHON}/site-packages"
    tarball = packing.Tarball("a.tar", {f"{site}/only_here.py": module}, whole.scripts)
    top = unpacked(tarball, tmp_path / "node")
    code = "import sys, only_here; print(only_here.WHERE, sys.path.index('/from-spark'), sys.version_info[:2])"
    out = subprocess.check_output(["bin/python", "-c", code], cwd=top, env={"PYTHONPATH": "/from-spark"}, text=True)
    assert out.split()[0] == f"{top}/{site}/only_here.py"
    assert out.split(maxsplit=2)[1:] == ["1", f"{sys.version_info[:2]}\n"]


def test_a_node_without_that_python_says_so_in_one_line(tmp_path: Path) -> None:
    """The launcher of an interpreter that this node does not have."""
    launcher = packing._LAUNCHER.format(python="python3.99", origin="/nowhere/python3.99")
    top = unpacked(packing.Tarball("a.tar", {}, {"bin/python": launcher}), tmp_path / "node")
    done = subprocess.run([top / "bin" / "python"], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr.startswith("dlobd: job failed: node ")
    assert done.stderr.endswith("has no python3.99: neither /nowhere/python3.99 nor python3.99 on its PATH\n")


def test_dlobd_travels_as_a_zip_that_python_imports(tmp_path: Path) -> None:
    """What runs on the nodes is imported from it; the same content is the same file."""
    path = packing.package()
    assert packing.package() == path
    code = "import dlobd.job.training.driver, dlobd.job.launchers.base; print(dlobd.__file__)"
    out = subprocess.check_output([sys.executable, "-c", code], env={"PYTHONPATH": str(path)}, cwd=tmp_path, text=True)
    assert out.strip() == f"{path}/dlobd/__init__.py"


def archive(path: Path, *names: str) -> Path:
    """An archive with empty files of these names."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as made:
            for name in names:
                made.writestr(name, "")
    else:
        with tarfile.open(path, "w:gz") as made_tar:
            for name in names:
                made_tar.addfile(tarfile.TarInfo(name))
    return path


OURS = f"lib/{packing.PYTHON}/os.py"


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.zip"])
def test_an_archive_of_the_same_python_is_taken(tmp_path: Path, name: str) -> None:
    """As conda-pack and venv-pack write them; its name in the cluster follows its content."""
    path = archive(tmp_path / name, "bin/python", OURS)
    packing.check_archive(path)
    first = packing.archive_name(path)
    assert first.endswith(name[1:])
    assert packing.archive_name(archive(path, "bin/python", OURS, "x")) != first


@pytest.mark.parametrize(
    ("name", "members", "words"),
    [
        ("a.tar.gz", [OURS], "holds no bin/python"),
        ("a.tar.gz", ["bin/python", "lib/python3.6/os.py"], r"holds python3\.6, and this driver is"),
        ("a.zip", ["bin/python"], "holds no Python library"),
        ("a.rar", ["bin/python", OURS], "YARN would not unpack it"),
    ],
)
def test_another_archive_is_refused(tmp_path: Path, name: str, members: list[str], words: str) -> None:
    """Before anything is uploaded."""
    with pytest.raises(UsageError, match=words):
        packing.check_archive(archive(tmp_path / name, *members))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    """Missing, or other bytes."""
    with pytest.raises(UsageError, match="cannot be read"):
        packing.check_archive(tmp_path / "none.tar")
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    with pytest.raises(UsageError, match="is not a"):
        packing.check_archive(tmp_path / "a.tar.gz")

"""What travels to nodes that have nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from dlobd.errors import SetupError, UsageError
from dlobd.paths import spark_home
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


SITE = f"lib/{packing.PYTHON}/site-packages/"

STAYS = [
    *("dlobd", "pyspark", "py4j"),
    *("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel", "clang", "tensorflow/include"),
    *("pandas", "matplotlib", "PIL", "fontTools", "jsonschema", "typer", "pydantic"),
    *("pytest", "_pytest", "hypothesis", "mypy", "mypyc", "ruff", "grimp", "importlinter"),
]
"""What no node needs of this environment: ourselves, tools, and what only the client imports."""


def test_the_environment_holds_what_nodes_need() -> None:
    names = {name.removeprefix(SITE) for name in packing.environment().files}
    compiled = f"numpy/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    assert {"tensorflow/__init__.py", "keras/__init__.py", "numpy/__init__.py", compiled} <= names
    assert any(name.endswith(".so") for name in names)
    beside = {name for name in packing.environment().files if not name.startswith((SITE, "bin/"))}
    assert {"lib/libmpi.so.12", "lib/mpich/libucp.so.0", "lib/mpich/ucx/libuct_ib.so.0"} <= beside
    stays = tuple(name for top in STAYS for name in (f"{top}/", f"{top}.", f"{top}-", f"{top}_"))
    assert [name for name in names if name.startswith(("__editable__", *stays))] == []
    assert [name for name in names if "/tests/" in name or name.endswith((".h", ".a", ".pyi"))] == []


def installed(site: Path, name: str, *requires: str, files: tuple[str, ...] = ()) -> None:
    """A package as pip leaves it: one module, a stub, a test, and further `files`."""
    lines = [f"{name}-1.dist-info/{file},,\n" for file in ("METADATA", "RECORD")]
    for file in (f"{name}/__init__.py", f"{name}/stub.pyi", f"{name}/tests/t.py", f"../../../bin/{name}", *files):
        path = site / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        lines.append(f"{file},,\n")
    info = site / f"{name}-1.dist-info"
    info.mkdir()
    required = "".join(f"Requires-Dist: {line}\n" for line in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{required}")
    (info / "RECORD").write_text("".join(lines))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with dlobd, what it requires, and nothing else."""
    site = tmp_path / "venv" / SITE
    needs = ("tensorflow==2.21.*", "pandas", "rich", 'pytest; extra == "dev"')
    installed(site, "dlobd", *needs)
    installed(site, "tensorflow", "keras>=3", "libclang", "setuptools", 'pandas; extra == "frames"')
    installed(site, "keras", "rich (>=1)", files=("keras/__pycache__/stale.cpython-30.pyc",))
    for name in ("pandas", "rich", "pytest", "libclang", "pip", "setuptools"):
        installed(site, name)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(site))
    return site


def packed() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in packing.environment().files:
        top, _, file = name.removeprefix(SITE).partition("/")
        found.setdefault(top, set()).add(file)
    return found


def test_what_is_required_travels_along(site: Path) -> None:
    """By what nodes need, not by the client or by an extra; a package's record travels for importlib.metadata."""
    assert sorted(packed()) == sorted(
        name for top in ("tensorflow", "keras", "rich") for name in (top, f"{top}-1.dist-info")
    )
    assert packed()["keras"] == {"__init__.py"}


def test_a_persons_own_package_travels_whole_and_with_what_it_requires(site: Path) -> None:
    (site / "own").mkdir()
    cache = f"own/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
    installed(site, "own", "Pandas>=2; python_version > '3'", "tensorflow", "setuptools", files=(cache,))
    found = packed()
    assert {"own", "pandas", "setuptools"} <= found.keys()
    assert not {"pytest", "libclang", "pip", "dlobd"} & found.keys()
    assert found["own"] == {"__init__.py", "stub.pyi", "tests/t.py", cache.removeprefix("own/")}
    assert found["pandas"] == {"__init__.py"}


def test_only_a_change_of_what_travels_is_a_new_archive(site: Path) -> None:
    before = packing.environment().name
    (site / "pytest-1.dist-info" / "RECORD").write_text("pytest/new.py,,\n")
    assert packing.environment().name == before
    (site / "keras-1.dist-info" / "RECORD").write_text("keras/new.py,,\n")
    assert packing.environment().name != before


@pytest.mark.parametrize(("file", "text"), [("direct_url.json", '{"dir_info": {"editable": true}}'), ("RECORD", None)])
def test_a_package_whose_files_are_not_known_is_refused(site: Path, file: str, text: str | None) -> None:
    """Its code would be missing on nodes. It is not asked of what stays here."""
    for name in ("pytest", "keras"):
        path = site / f"{name}-1.dist-info" / file
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
    with pytest.raises(SetupError, match=r"keras .*packed"):
        packing.environment()


JOB = """
import importlib, pkgutil
import dlobd.job, dlobd.network
from dlobd.job.launchers import tfos_compat
tfos_compat.install()
for package in (dlobd.job, dlobd.network):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
from dlobd.network.exchanges import mpi
print("mpi", mpi._loaded().Get_library_version().split()[0])
from dlobd.job.launchers.imports import import_tensorflow
import_tensorflow()
import tensorflow as tf
weights = tf.Variable([1.0])
with tf.GradientTape() as tape:
    loss = weights * 3.0
print("gradient", tape.gradient(loss, weights).numpy()[0])
import tensorflowonspark.pipeline
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(loss="mse")
model.fit(tf.ones((2, 3)), tf.ones((2, 1)), verbose=0)
print("keras", model.count_params())
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_job_finds_all_that_it_imports(tmp_path: Path) -> None:
    """With what is packed, dlobd's zip and Spark's own Python part, and no other package: modules, and a step."""
    tarball = packing.environment()
    top = unpacked(packing.Tarball("a.tar", {}, tarball.scripts), tmp_path / "node")
    for name, path in tarball.files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).symlink_to(path)
    spark = sorted((spark_home() / "python" / "lib").glob("*.zip"))
    env = {"PYTHONPATH": ":".join(map(str, [*spark, packing.package()])), "PYTHONDONTWRITEBYTECODE": "1"}
    # -S: the interpreter that stands in for the node's may have packages of its own
    done = subprocess.run(
        [top / "bin" / "python", "-S", "-c", JOB], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["mpi MPICH", "gradient 3.0", "keras 4"], done.stderr


def test_sparks_jars_are_those_of_an_application() -> None:
    """RDDs, SQL, MLlib and YARN; nothing for other clusters, shells and servers; under 300 MB."""
    tarball = packing.spark_libs(spark_home() / "jars")
    kept = {name.split("_2.13")[0] for name in tarball.files}
    parts = ("core", "sql", "catalyst", "yarn", "mllib", "streaming", "network-common", "network-shuffle")
    assert {f"spark-{part}" for part in parts} <= kept
    assert [name for name in tarball.files if name.startswith(("hadoop-client-", "hive-storage-api-"))] != []
    others = ("kubernetes-", "spark-kubernetes", "spark-connect", "spark-hive", "hive-exec", "rocksdbjni", "derby")
    assert [name for name in tarball.files if name.startswith(others)] == []
    assert tarball.size_bytes < 300e6


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
    launcher = packing._LAUNCHER.format(python="python3.99", origin="/nowhere/python3.99")
    top = unpacked(packing.Tarball("a.tar", {}, {"bin/python": launcher}), tmp_path / "node")
    done = subprocess.run([top / "bin" / "python"], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr.startswith("dlobd: job failed: node ")
    assert done.stderr.endswith("has no python3.99: neither /nowhere/python3.99 nor python3.99 on its PATH\n")


def test_dlobd_travels_as_a_zip_that_python_imports(tmp_path: Path) -> None:
    path = packing.package()
    assert packing.package() == path
    code = "import dlobd.job.training.driver, dlobd.job.launchers.base; print(dlobd.__file__)"
    out = subprocess.check_output([sys.executable, "-c", code], env={"PYTHONPATH": str(path)}, cwd=tmp_path, text=True)
    assert out.strip() == f"{path}/dlobd/__init__.py"


def archive(path: Path, *names: str) -> Path:
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


def test_what_is_compressed_is_what_a_node_unpacks(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(3 << 20) + os.urandom(100))
    tarball = packing.Tarball("a.tar.gz", {"lib/file": tmp_path / "file"}, {})
    data = b"".join(packing.compressed(tarball.chunks()))
    assert len(data) < 1 << 20
    subprocess.run(["tar", "-xz", "-C", tmp_path], input=data, check=True)
    assert (tmp_path / "lib" / "file").read_bytes() == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.zip"])
def test_an_archive_of_the_same_python_is_taken(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / name, "bin/python", OURS)
    packing.check_archive(path)
    first = packing.archive_name(path)
    assert first.endswith(name[1:])
    assert packing.archive_name(archive(path, "bin/python", OURS, "x")) != first


@pytest.mark.parametrize(
    ("name", "members", "words"),
    [
        ("a.tar.gz", [OURS], "contains no bin/python"),
        ("a.tar.gz", ["bin/python", "lib/python3.6/os.py"], r"contains python3\.6, but the driver runs"),
        ("a.zip", ["bin/python"], "contains no Python library"),
        ("a.rar", ["bin/python", OURS], "YARN does not unpack it"),
    ],
)
def test_another_archive_is_refused(tmp_path: Path, name: str, members: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        packing.check_archive(archive(tmp_path / name, *members))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        packing.check_archive(tmp_path / "none.tar")
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    with pytest.raises(UsageError, match="is not a"):
        packing.check_archive(tmp_path / "a.tar.gz")

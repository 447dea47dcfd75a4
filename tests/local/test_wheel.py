import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which a freshly built wheel was unpacked; the checkout is nowhere near."""
    tmp_path = tmp_path_factory.mktemp("wheel")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    for name in ("dlobd", "jobs", "requirements", "yarn", "data"):
        shutil.copytree(CHECKOUT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(source)], check=True, timeout=110)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    shutil.rmtree(source)
    return tmp_path / "site"


def _python(installed: Path, cwd: Path, *arguments: str) -> str:
    # first on the path, before the environment's link to the checkout
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_carries_jobs_configuration_and_data(installed: Path, tmp_path: Path) -> None:
    """Every file of jobs/, yarn/ and data/ that the checkout ships is in the wheel, byte by byte."""
    code = (
        "import json; from dlobd.paths import shipped;"
        "print(json.dumps([str(shipped(name)) for name in ('jobs', 'yarn', 'data/mnist')]))"
    )
    folders = [Path(path) for path in json.loads(_python(installed, tmp_path, "-c", code))]
    for folder, name in zip(folders, ("jobs", "yarn", "data/mnist"), strict=True):
        assert installed in folder.parents
        # linters leave their settings and caches in the checkout only
        left_out = ("__pycache__", ".ruff_cache", "ruff.toml")
        original = {
            path.relative_to(CHECKOUT / name): path.read_bytes()
            for path in (CHECKOUT / name).rglob("*")
            if path.is_file() and not set(left_out) & set(path.parts)
        }
        assert original
        for path, content in original.items():
            assert (folder / path).read_bytes() == content, path


def test_a_wheel_leaves_out_what_may_not_be_passed_on(installed: Path, tmp_path: Path) -> None:
    """Nothing of CIFAR-10 is in it; the data sets that need it say what to do."""
    assert (CHECKOUT / "data" / "cifar-10" / "data_batch_1.bin.gz").is_file()
    held = [path.relative_to(installed) for path in installed.rglob("*") if path.is_file()]
    assert not [path for path in held if "cifar-10" in str(path) or "_batch" in path.name]
    assert sum((installed / path).stat().st_size for path in held) < 15_000_000
    listed = json.loads(_python(installed, tmp_path, "-m", "dlobd", "list", "datasets", "--json"))["datasets"]
    why = {row["name"]: row["unavailable"] for row in listed}
    assert why["mnist"] is None
    assert "dlobd data fetch cifar10" in why["cifar10-partial"]


def test_a_wheel_lists_and_plans_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    members = json.loads(_python(installed, tmp_path, "-m", "dlobd", "list", "experiments", "--json"))
    assert "softmax-mnist" in [row["name"] for row in members["experiments"]]
    code = "from dlobd.paths import shipped; print(shipped('requirements/install.py'))"
    assert installed in Path(_python(installed, tmp_path, "-c", code).strip()).parents
    code = "from dlobd.job.datasets.mnist import Mnist; print(Mnist().files()[0], len(Mnist().load('test')[1]))"
    path, count = _python(installed, tmp_path, "-c", code).split()
    assert installed in Path(path).parents
    assert count == "10000"


def test_a_wheel_carries_the_types_and_the_licences(installed: Path) -> None:
    assert (installed / "dlobd" / "py.typed").is_file()
    (licences,) = installed.glob("*.dist-info/licenses")
    assert (licences / "LICENSE").read_bytes() == (CHECKOUT / "LICENSE").read_bytes()
    assert (licences / "data" / "mnist" / "README.md").is_file()

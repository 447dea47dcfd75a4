"""The guest's parts that need neither QEMU nor a kernel; `tests/full/guest` boots it."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest

from tests.guest import initramfs, machine, packages
from tests.guest.initramfs import MODULES, Kernel

VERSION = "6.1.0-56-amd64"


def kernel(root: Path, version: str = VERSION, modules: tuple[str, ...] = MODULES) -> Kernel:
    """An installed kernel, whose modules hold their own names; rdma_rxe needs ib_core, which needs base."""
    place = root / "lib/modules" / version
    needs = {"rdma_rxe": ["ib-core", "base"], "ib-core": ["base"], "base": []}
    files = {name: f"kernel/{name}.ko" for name in (*modules, "ib-core", "base")}
    files["base"] += ".xz"
    for name, file in files.items():
        content = name.encode()
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_bytes(lzma.compress(content) if file.endswith(".xz") else content)
    lines = [f"{file}: {' '.join(files[need] for need in needs.get(name, []))}\n" for name, file in files.items()]
    (place / "modules.dep").write_text("".join(lines))
    (place / "modules.builtin").write_text("kernel/fs/ext4.ko\n")
    (root / "boot").mkdir(exist_ok=True)
    image = root / "boot" / f"vmlinuz-{version}"
    image.touch()
    return Kernel(image, place)


def test_the_newest_kernel_with_soft_roce_is_the_last(tmp_path: Path) -> None:
    older, newer = kernel(tmp_path, "6.1.0-9-amd64"), kernel(tmp_path, "6.1.0-56-amd64")
    kernel(tmp_path, "7.0.0-1-amd64", modules=("9p",))
    kernel(tmp_path, "7.0.0-2-amd64").image.unlink()
    assert initramfs.kernels(tmp_path) == [older, newer]


def test_modules_are_loaded_after_what_they_need(tmp_path: Path) -> None:
    names = [path.name.partition(".")[0] for path in initramfs.load_order(kernel(tmp_path))]
    assert sorted(names) == sorted([*MODULES, "ib-core", "base"])
    assert names.index("base") < names.index("ib-core") < names.index("rdma_rxe")


def test_what_the_kernel_has_built_in_is_not_loaded(tmp_path: Path) -> None:
    made = kernel(tmp_path, modules=tuple(name for name in MODULES if name != "virtio_pci"))
    with pytest.raises(LookupError, match=f"kernel {VERSION} has no module virtio_pci"):
        initramfs.load_order(made)
    (made.modules / "modules.builtin").write_text("kernel/drivers/virtio/virtio-pci.ko\n")
    assert "virtio_pci.ko" not in [path.name for path in initramfs.load_order(made)]


def test_the_archive_has_what_it_was_given(tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"#!odd\0length")
    content = files_of(initramfs.archive(kernel(tmp_path), busybox))
    assert content["bin/busybox"] == busybox.read_bytes()
    assert content["bin/switch_root"] == b"busybox"
    assert content["init"].startswith(b"#!/bin/sh\n")
    order = content["modules/order"].decode().split()
    assert [content[f"modules/{name}"].decode() for name in order] == [name.removesuffix(".ko") for name in order]


def files_of(archive: bytes) -> dict[str, bytes]:
    """Path to content of a cpio archive: 13 numbers of 8 hexadecimal digits after its magic, then path and content."""
    found, at = {}, 0
    while True:
        numbers = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        path = archive[at + 110 : at + 110 + numbers[11] - 1].decode()
        assert archive[at : at + 6] == b"070701"
        if path == "TRAILER!!!":
            return found
        at += (110 + numbers[11] + 3) & ~3
        found[path] = archive[at : at + numbers[6]]
        at += (numbers[6] + 3) & ~3


def test_what_is_missing_is_told_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "program", lambda name: "")
    monkeypatch.setattr(initramfs, "kernels", list)
    monkeypatch.setattr(packages, "LIBRARIES", {f"no/{name}": package for name, package in packages.LIBRARIES.items()})
    lacking = packages.missing()
    assert len(lacking) == len(packages.PROGRAMS) + len(packages.LIBRARIES) + 1
    lines = Path(machine.__file__).with_name("packages.txt").read_text().splitlines()
    rows = [line.split("#") for line in lines if not line.startswith("#")]
    assert all(reason.strip() for _, reason in rows)
    named = {match for line in lacking for match in re.findall(r"\((.*)\)", line)}
    assert named == {name.strip() for name, _ in rows}
    with pytest.raises(machine.GuestError, match=r"no guest without .*qemu-system-x86"):
        machine.run(["true"])

"""A measured command has figures of its own process, and ends at its limits."""

from __future__ import annotations

from bench.scale.measure import run

MIB = 1 << 20


def test_figures_are_those_of_the_process_alone() -> None:
    ours = bytearray(b"x") * (300 * MIB)
    figures, output = run(["-c", "print(7)"])
    assert output == "7"
    assert "aborted" not in figures
    assert figures["peak_bytes"] < len(ours) // 3
    large, _ = run(["-c", f"b'x' * {200 * MIB}"])
    assert large["peak_bytes"] > 200 * MIB


def test_a_process_ends_at_its_limits() -> None:
    greedy, _ = run(["-c", f"bytearray({600 * MIB})"], memory_bytes=512 * MIB)
    assert greedy["aborted"] == "more than 0.5 GiB"
    endless, _ = run(["-c", "while True: pass"], cpu_s=1)
    assert endless["aborted"] == "more than 1 s of CPU"


def test_a_failed_process_has_its_last_line_as_the_reason() -> None:
    failed, _ = run(["-m", "dlobd", "show", "/nowhere/20260101T000000Z-0001"])
    assert "there is no run" in failed["aborted"]

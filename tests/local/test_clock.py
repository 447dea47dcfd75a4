"""Clocks of other processes."""

from __future__ import annotations

import subprocess
import sys

from dlobd.tracing import clock


def test_a_domain_is_the_same_in_every_process_of_this_machine() -> None:
    """Host, boot and time namespace: a child shares them, so that its times compare with ours."""
    code = "from dlobd.tracing import clock; print(clock.domain(), clock.monotonic_ns())"
    before = clock.monotonic_ns()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    domain, at_ns = done.stdout.split()
    assert domain == clock.domain()
    assert domain.count("/") == 2
    assert "unknown" not in domain
    assert before < int(at_ns) < clock.monotonic_ns()


def test_a_process_start_is_known_to_one_tick() -> None:
    """A child's start lies between our readings around its start, to one kernel tick; it stays the same while it runs;
    one that is gone has none."""
    before = clock.monotonic_ns()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        after = clock.monotonic_ns()
        first = clock.process_start_ns(child.pid)
        assert before - clock.tick_ns() <= first <= after + clock.tick_ns()
        again = clock.process_start_ns(str(child.pid))
        # the two boot clocks are read one after the other
        assert abs(again - first) < clock.tick_ns()
        child.communicate(b"\n")
    assert clock.process_start_ns(child.pid) is None


def test_a_process_name_may_hold_anything() -> None:
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b') R 1 (x', 0, 0, 0); from dlobd.tracing import clock; "
    code += "print(open('/proc/self/comm').read().strip(), clock.process_start_ns(), sep='|')"
    before = clock.monotonic_ns()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    name, start = done.stdout.strip().split("|")
    assert name == ") R 1 (x"
    assert before - clock.tick_ns() <= int(start) <= clock.monotonic_ns()

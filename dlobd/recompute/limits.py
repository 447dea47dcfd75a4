"""Limits of CPU time and memory for the work after a job: no evidence, however large or contradictory, stops dlobd."""

import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from dlobd.errors import DlobdError
from dlobd.memory import address_space_bytes, available_memory_bytes
from dlobd.record.run import Omitted

CPU_S, BYTES_PER_CPU_S = 300.0, 10_000_000
"""Limit of CPU time per part, and the bytes of span files that add a second: several times the need. It does not depend
on the load of the machine."""

MEMORY_SHARE, LEAST_BYTES = 0.75, 2 << 30
"""Limit of additional memory: a fraction of the memory that is available when a part begins, or 2 GiB if it is less."""

_AGAIN_S = 1.0  # Python ignores an exception inside a finaliser: the signal comes again

T = TypeVar("T")


class LimitExceeded(Exception):
    """End of a part that exceeded a limit."""


class _TimeIsOver(BaseException):
    """The signal of the timer. No `except Exception` of a part catches it."""


@contextmanager
def limited_memory(granted_bytes: int | None = None) -> Iterator[None]:
    """Raise LimitExceeded if the block needs more additional memory, by default MEMORY_SHARE of the available memory. A
    process that the block starts inherits the limit, which no JVM survives."""
    granted = max(int(available_memory_bytes() * MEMORY_SHARE), LEAST_BYTES) if granted_bytes is None else granted_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = [address_space_bytes() + granted, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    try:
        resource.setrlimit(resource.RLIMIT_AS, (min(wanted), hard))
        yield
    except MemoryError:
        raise LimitExceeded(f"more than {granted / 1e6:.0f} MB of memory") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def limited_time(cpu_s: float) -> Iterator[None]:
    """Raise LimitExceeded if the block uses more CPU time. Python handles signals in the main thread only: in another
    thread there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    begun_s, running = time.process_time(), True

    def over(number: int, frame: FrameType | None) -> None:
        if running:
            raise _TimeIsOver

    handler = signal.signal(signal.SIGPROF, over)
    left_s, again_s = signal.setitimer(signal.ITIMER_PROF, cpu_s, _AGAIN_S)
    try:
        yield
    except _TimeIsOver:
        raise LimitExceeded(f"more than {cpu_s:g} s of CPU time") from None
    finally:
        running = False
        left_s = max(left_s - (time.process_time() - begun_s), 0.001) if left_s else 0.0
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        signal.setitimer(signal.ITIMER_PROF, left_s, again_s)


class Parts:
    """The parts of a computation, each within the limits, which depend on the size of the span files. With `forgives`,
    a part that fails or exceeds a limit is omitted; otherwise its error is raised."""

    def __init__(self, forgives: bool = False, span_bytes: int = 0) -> None:
        self._forgives, self._cpu_s = forgives, CPU_S + span_bytes // BYTES_PER_CPU_S
        self.omitted: list[Omitted] = []

    def get(self, part: str, compute: Callable[[], T], otherwise: T) -> T:
        """Return the result of a part, or `otherwise` if it was omitted. Raises a DlobdError of the part."""
        try:
            with limited_time(self._cpu_s), limited_memory():
                return compute()
        except DlobdError:
            raise
        except Exception as error:  # a fault of dlobd must not cost the rest of the record
            if not self._forgives:
                raise
            needs = isinstance(error, LimitExceeded)
            reason = f"it needs {error}" if needs else f"{type(error).__name__}: {error}"
            self.omitted.append(Omitted(part, " ".join(reason.split())))
            return otherwise

"""Callbacks of a run: progress lines, and hooks for callers of `dlobd.run.runner.run`."""

from collections.abc import Callable

from dlobd.bundle.store import Bundle
from dlobd.run.schedulers.base import Command

Report = Callable[[str], None]
"""Function that receives a line for each step of a command when the step begins."""


def prefixed(report: Report, phase: str) -> Report:
    """Return a `Report` that names the phase before each line."""
    return lambda line: report(f"{phase}: {line}")


class RunObserver:
    """Hooks of a run. Subclasses override the hooks that they need."""

    def created(self, bundle: Bundle) -> None:
        """Receive the new bundle before anything is started."""

    def output(self, line: str) -> None:
        """Receive a line of the output of the user's own script while it runs."""

    def submitting(self, command: Command) -> Command:
        """Receive the submit command and return the command to be used, for example with injected delays."""
        return command

"""Expected failures, with exit codes and next steps.

An error is one line with three parts: what failed, why, and the next step. docs/reference.md lists the exit codes.
"""


class DlobdError(Exception):
    """An expected failure: `what` failed and why, and as `remedy` the user's next step, which may be empty."""

    exit_code = 1

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = " ".join(what.split())
        self.remedy = " ".join(remedy.split()).removesuffix(".")  # a full stop would be copied with a command
        super().__init__(self.line)

    @property
    def line(self) -> str:
        """The line that the user sees."""
        return f"{self.what} Next: {self.remedy}" if self.remedy else self.what


class UsageError(DlobdError):
    """An error in the command line or in an experiment file."""

    exit_code = 2


class SetupError(DlobdError):
    """A missing requirement of this machine: Java, jars, memory, disk, ports, data."""

    exit_code = 3


class ClusterError(DlobdError):
    """A failure of HDFS or YARN to start or to respond."""

    exit_code = 4


class RunFailed(DlobdError):
    """Failure of a job after its start."""

    exit_code = 5


class RunInvalid(DlobdError):
    """Untrustworthy result of a job that ended."""

    exit_code = 6


class BundleError(DlobdError):
    """A run bundle that is missing, damaged or of a newer schema."""

    exit_code = 7


class Busy(DlobdError):
    """Conflict with another dlobd command that uses the same cluster or file."""

    exit_code = 8


class Regression(DlobdError):
    """Significant slowdown of runs relative to their baseline, above the limit."""

    exit_code = 9


class Undecided(DlobdError):
    """Comparison with too few runs to show or to exclude a regression."""

    exit_code = 10


class Interrupted(DlobdError):
    """End of the command by the user (Ctrl-C) or the system (SIGTERM)."""

    exit_code = 130

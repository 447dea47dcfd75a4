"""Errors of file systems and HTTP clients. Spark's Python workers import this early, so it imports no HTTP client."""

from __future__ import annotations

from collections.abc import Iterator


def failures() -> tuple[type[Exception], type[Exception]]:
    """Return the errors by which HDFS or a disk refuses or cannot be reached, for `except failures():`.

    Python evaluates the expression only after an exception, so that the HTTP client is imported only then.
    """
    from hdfs import HdfsError

    return HdfsError, OSError


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that HTTP libraries have wrapped in it, outermost first."""
    while error:
        yield error
        error = error.__cause__ or error.__context__

"""The JSON documents of a bundle, all read at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from dlobd.bundle import files, reading
from dlobd.bundle.reading import Damaged, Missing
from dlobd.errors import BundleError
from dlobd.evidence.facts import DOCUMENTS

T = TypeVar("T")

WITHOUT = {
    files.WINDOW: "window: nothing was submitted",
    files.JOB: f"{files.JOB}: in which way the job ran is unknown",
}
"""Each document without which nothing can be computed -> the end of the error."""


class Documents:
    """The documents of one bundle, by name. A document of another shape than `DOCUMENTS` states is damaged."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._found: dict[str, Any] = {name: reading.read_json(bundle / name, kind) for name, kind in DOCUMENTS.items()}
        window = self._found[files.WINDOW]
        if isinstance(window, dict) and not window["exec_ns"] <= window["exit_ns"]:
            self._found[files.WINDOW] = Damaged("is damaged: it ends before it begins")

    def has(self, name: str) -> bool:
        """Return True if a document is neither missing nor damaged."""
        return not isinstance(self._found[name], Missing | Damaged)

    def get(self, name: str, otherwise: T) -> T:
        """Return a document; `otherwise` if it is missing or damaged."""
        document = self._found[name]
        return otherwise if isinstance(document, Missing | Damaged) else document

    def needed(self, name: str) -> Any:
        """Return the window or the job.

        Raises:
            BundleError: the document is missing or damaged.
        """
        document = self._found[name]
        if isinstance(document, Missing):
            raise BundleError(f"{self._bundle} has no {WITHOUT[name]}.", "look at its run.json")
        if isinstance(document, Damaged):
            raise BundleError(f"{self._bundle / name} {document.reason}.", "look at its run.json")
        return document

    @property
    def damaged(self) -> dict[str, str]:
        """Name of each damaged document -> the reason."""
        return {name: document.reason for name, document in self._found.items() if isinstance(document, Damaged)}

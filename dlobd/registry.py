"""A registry: name -> lazily imported object, or the reason why it is not available here. `dlobd.axes` has them all.

Listing a registry imports nothing: a member whose library is missing is still listed, with that reason. Other packages
add members by entry points, whose values are `module:attribute`; a name of dlobd's own is dlobd's.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from operator import attrgetter
from typing import Any

from dlobd.errors import SetupError, UsageError
from dlobd.paths import data_file


@dataclass(frozen=True, slots=True)
class Row:
    """A member of an axis.

    Args:
        target: "module:attribute"; empty for a property of TensorFlow, Spark or YARN that needs no code in dlobd.
        needs: modules that must be importable for it to work.
        unavailable: why it cannot be used anywhere with this version; empty if it can.
        data_file: a file below a data folder without which it is not available; empty if it needs none.
        without_data: why that file may not be there, and what to do.
        part_of: the member of which it is only a part, so that every report must say so; empty if it is whole.
        package: the package and its version that added it by an entry point; empty for dlobd's own.
    """

    name: str
    title: str
    target: str = ""
    needs: tuple[str, ...] = ()
    unavailable: str = ""
    data_file: str = ""
    without_data: str = ""
    part_of: str = ""
    package: str = ""

    def reason(self) -> str | None:
        """Why the member is not available here; None if it is."""
        if self.unavailable:
            return self.unavailable
        if self.package:  # only its top: to look for a module below imports the package
            modules: tuple[str, ...] = (self.target.partition(":")[0].partition(".")[0],)
        else:
            modules = (*self.needs, self.target.partition(":")[0]) if self.target else self.needs
        missing = [module for module in modules if not _importable(module)]
        if missing:
            return f"Python module {missing[0]!r} is not installed"
        return self.without_data if self.data_file and data_file(self.data_file) is None else None


class Registry:
    """The members of one axis, in the order in which they are listed.

    Args:
        kind: the axis, in the plural: models, datasets, ...
        group: of the entry points by which other packages add members; empty where they cannot.
    """

    def __init__(self, kind: str, rows: Iterable[Row], group: str = "") -> None:
        self.kind = kind
        self._rows = {row.name: row for row in rows}
        self.group = group

    @property
    def one(self) -> str:
        """One member of the axis, in words: model, deploy mode."""
        words = self.kind.replace("-", " ")
        if words.endswith("ies"):
            return words.removesuffix("ies") + "y"
        return words.removesuffix("es") if words.endswith("sses") else words.removesuffix("s")

    def __iter__(self) -> Iterator[Row]:
        return iter(self._all().values())

    def _all(self) -> dict[str, Row]:
        return {**self._rows, **{name: row for name, row in _added(self.group).items() if name not in self._rows}}

    def names(self) -> tuple[str, ...]:
        """All members, available or not."""
        return tuple(self._all())

    def built_in(self) -> tuple[str, ...]:
        """The members that come with dlobd; it looks for no other."""
        return tuple(self._rows)

    def available(self) -> list[tuple[str, str, str | None]]:
        """(name, title, reason) of each member; reason is None where it is available."""
        return [(row.name, row.title, row.reason()) for row in self]

    def row(self, name: str) -> Row:
        """The row of `name`.

        Raises:
            UsageError: no such member; the nearest is named.
        """
        if name in self._rows:
            return self._rows[name]
        if name not in (members := self._all()):
            raise UsageError(unknown(self.one, name, members), f"dlobd list {self.kind}")
        return members[name]

    def get(self, name: str) -> Any:
        """The object of `name`, imported now; None for a member that needs no code in dlobd.

        Raises:
            UsageError: no such member; the nearest is named.
            SetupError: it is not available here.
        """
        row = self.row(name)
        if reason := row.reason():
            raise SetupError(f"{self.one.capitalize()} {name!r} is not available: {reason}.", f"dlobd list {self.kind}")
        return self._imported(row)

    def declared(self, name: str) -> Any:
        """As `get`, also where what it needs to work is not installed: for what a member says of itself. Only for
        members whose own module needs nothing of that.

        Raises:
            UsageError: no such member; the nearest is named.
        """
        return self._imported(self.row(name))

    @staticmethod
    def _imported(row: Row) -> Any:
        if not row.target:
            return None
        module, _, attribute = row.target.partition(":")
        if not row.package:
            return getattr(importlib.import_module(module), attribute)
        try:
            return attrgetter(attribute)(importlib.import_module(module))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise SetupError(f"{row.name!r} of package {row.package} cannot be imported: {why}.") from error


def _added(group: str) -> dict[str, Row]:
    """The members that other packages add; of two with one name the first that Python finds."""
    rows: dict[str, Row] = {}
    for point in metadata.entry_points(group=group) if group else ():
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"
        title = f"from package {package}"
        rows.setdefault(point.name, Row(point.name, title, f"{point.module}:{point.attr}", package=package))
    return rows


def unknown(kind: str, name: str, valid: Iterable[str]) -> str:
    """One sentence on a name that does not exist, with the nearest that does; `kind` is in the singular."""
    names = list(valid)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"it is one of: {', '.join(names)}."
    return f"Unknown {kind} {name!r}; {hint}"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False

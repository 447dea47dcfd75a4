"""Registries: name -> lazily imported object, or the reason why it is not available. `dlobd.axes` has all registries.

Listing a registry imports nothing. A member with a missing library is listed with that reason. Other packages add
members by entry points with values `module:attribute`; names of dlobd's own members take precedence.
"""

import difflib
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from operator import attrgetter
from typing import Any

from dlobd.errors import SetupError, UsageError
from dlobd.paths import data_file
from dlobd.user_file import MemberRef

Member = Any
"""The imported object of a row: its type depends on the registry."""

LARGEST_MODEL_MB = 1792
"""Memory bound for models of other packages and of users, equal to that of VGG-16."""


@dataclass(frozen=True, slots=True)
class Row:
    """A member of a registry. An empty string means that the value is absent.

    target: "module:attribute".
    needs: modules that must be importable.
    unavailable: reason why this version cannot use it on any machine.
    data_file, without_data: required file below a data folder; reason and remedy if it is missing.
    memory_mb: upper bound of a model's memory, minus that of SoftMax regression, for batches of up to 50.
    part_of: name of the complete data set, if the member is a subset; every report states this.
    dataset: data set for which a model was published.
    package: name and version of the package that added the member by an entry point.
    """

    name: str
    title: str
    target: str = ""
    needs: tuple[str, ...] = ()
    unavailable: str = ""
    data_file: str = ""
    without_data: str = ""
    memory_mb: int = LARGEST_MODEL_MB
    part_of: str = ""
    dataset: str = ""
    package: str = ""

    def reason(self) -> str | None:
        """Return the reason why the member is not available on this machine; None if it is available."""
        if self.unavailable:
            return self.unavailable
        if self.package:  # only the top package, because the search for a submodule imports the package
            modules: tuple[str, ...] = (self.target.partition(":")[0].partition(".")[0],)
        else:
            modules = (*self.needs, self.target.partition(":")[0]) if self.target else self.needs
        for module in modules:
            try:
                found = importlib.util.find_spec(module)
            except ModuleNotFoundError:  # a parent package is missing
                found = None
            if found is None:
                return f"Python module {module!r} is not installed"
        return self.without_data if self.data_file and data_file(self.data_file) is None else None


class Registry:
    """Members of an axis, in display order. `kind`: plural name of the axis, such as models; `room`: package of all
    targets; `needs`: Python modules that every row requires; `group`: entry-point group of other packages."""

    def __init__(self, kind: str, *rows: Row, room: str = "", needs: tuple[str, ...] = (), group: str = "") -> None:
        self.kind = kind
        self.group = group
        prefix = f"{room}." if room else ""
        self._rows = {
            row.name: replace(row, target=row.target and prefix + row.target, needs=needs + row.needs) for row in rows
        }

    @property
    def singular(self) -> str:
        """Noun for a member of the axis: model, deploy mode."""
        words = self.kind.replace("-", " ")
        if words.endswith("ies"):
            return words.removesuffix("ies") + "y"
        return words.removesuffix("es") if words.endswith("sses") else words.removesuffix("s")

    def __iter__(self) -> Iterator[Row]:
        return iter(self._all().values())

    def _all(self) -> dict[str, Row]:
        return {**self._rows, **{name: row for name, row in _added(self.group).items() if name not in self._rows}}

    def names(self) -> tuple[str, ...]:
        """Return the names of all members, available or not."""
        return tuple(self._all())

    def built_in(self) -> tuple[str, ...]:
        """Return the names of the members that come with dlobd, without a search in other packages."""
        return tuple(self._rows)

    def row(self, name: str) -> Row:
        """Return the row of `name`. Raises UsageError, with the most similar name, if there is no such member."""
        if name in self._rows:
            return self._rows[name]
        if name not in (members := self._all()):
            raise UsageError(unknown(self.singular, name, members), f"dlobd list {self.kind}")
        return members[name]

    def get(self, name: str) -> Member:
        """Import and return the object of `name`; None for a member without code in dlobd. Raises UsageError if there
        is no such member, SetupError if it is not available on this machine."""
        row = self.row(name)
        if reason := row.reason():
            raise SetupError(
                f"{self.singular.capitalize()} {name!r} is not available: {reason}.", f"dlobd list {self.kind}"
            )
        return self._imported(row)

    def resolve(self, ref: MemberRef, sha256: str, text: Callable[[], str] | None = None) -> Member:
        """Load the object from the user's file, or import it like `get`. Raises UsageError and SetupError. `text`
        returns the file's text; by default, the file is read on this machine."""
        return ref.load(sha256, text or ref.read) if ref.path else self.get(ref)

    def declared(self, name: str) -> Member:
        """Import the member like `get`, but without the dependency check, to read class-level declarations. Its module
        must not import its dependencies. Raises UsageError if there is no such member."""
        return self._imported(self.row(name))

    @staticmethod
    def _imported(row: Row) -> Member:
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
    """Return the members of other packages. If two packages add the same name, the first on Python's path is used."""
    rows: dict[str, Row] = {}
    for point in metadata.entry_points(group=group) if group else ():
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"
        title = f"from package {package}"
        rows.setdefault(point.name, Row(point.name, title, f"{point.module}:{point.attr}", package=package))
    return rows


def unknown(kind: str, name: str, valid: Iterable[str]) -> str:
    """Return a message about an unknown name, with the most similar valid name; `kind` is a singular noun."""
    names = list(valid)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"it is one of: {', '.join(names)}."
    return f"Unknown {kind} {name!r}; {hint}"

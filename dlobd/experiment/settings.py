"""Settings: the fields of `Experiment` as users set them, in a file, with `--set` or as the axis of a sweep.

Type, range, registry, default and description come from the field's declaration.
"""

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from dlobd.axes import REGISTRIES
from dlobd.channel import Channel
from dlobd.errors import UsageError
from dlobd.fields import Description
from dlobd.registry import unknown
from dlobd.schema import Experiment
from dlobd.user_file import MemberRef

Value = str | int | float

_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "a boolean", list: "a list"}


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a value, for error messages: a file, or an option of the command line."""

    label: str
    text: str = ""
    option: bool = False

    def at(self, key: str) -> str:
        """Return `label:line` of a key; only the label if its line is unknown."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if re.match(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=\].]", line):
                return f"{self.label}:{number}"
        return self.label


def read_toml(path: Path, kind: str) -> tuple[dict[str, Any], Source]:
    """Read the unchecked values of a file, and its source. Raises UsageError if it cannot be read or is not TOML."""
    try:
        source = Source(str(path), path.read_text(encoding="utf-8"))
        return tomllib.loads(source.text), source
    except OSError as error:
        raise UsageError(f"{kind} file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{kind} file {path} is not UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", "write lines of the form key = value") from None


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of `Experiment`, or of `UserConfig`. A file must set it if `default` is `dataclasses.MISSING`."""

    name: str
    kind: type
    default: object
    about: Description

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def values(self) -> str:
        """The valid values, in words."""
        if isinstance(self.about.valid, tuple):
            low, high = (f"{int(end):,}" if end == int(end) else str(end) for end in self.about.valid)
            return f"{'0, or ' if self.about.zero else ''}{low} to {high}"
        if not self.about.valid:
            return "text"
        return ", ".join(row.name for row in REGISTRIES[self.about.valid] if not row.package and not row.unavailable)

    def parse(self, text: str, source: Source) -> Value:
        """Convert a value of the command line to the type of the field. Raises UsageError."""
        try:
            # float() accepts "nan" and "inf"; the range check refuses them
            value: Value = self._base(text)
        except ValueError:
            raise UsageError(f"{source.label}: {self.name} must be {_TYPE_NAMES[self._base]}, not {text!r}.") from None
        return value

    def check(self, value: object, where: str, stored: bool = False) -> Value:
        """Check type, range and registry of a value; return it. Raises UsageError."""
        if self._base is float and type(value) is int:
            value = float(value)
        if not isinstance(value, str | int | float) or not isinstance(value, self._base) or isinstance(value, bool):
            got = _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")
            raise UsageError(f"{where}: {self.name} must be {_TYPE_NAMES[self._base]}, not {got} ({value!r}).")
        if isinstance(value, str):
            self._check_text(value, where, stored)
        elif isinstance(self.about.valid, tuple):
            low, high = self.about.valid
            if not (math.isfinite(value) and low <= value <= high) and not (self.about.zero and value == 0):
                raise UsageError(f"{where}: {self.name} must be between {_plain(low)} and {_plain(high)}, not {value}.")
        return value

    @property
    def _base(self) -> type:
        return str if issubclass(self.kind, str) else self.kind

    def _check_text(self, value: str, where: str, stored: bool) -> None:
        if self.name == "name" and not re.fullmatch(str(self.about.limits["pattern"]), value):
            raise UsageError(
                f"{where}: name {value!r} may contain only letters, digits, '.', '_' and '-': it names a directory."
            )
        if self.kind is MemberRef:
            MemberRef(value).check()
            if stored or MemberRef(value).path:  # a stored name may belong to a package that is not installed
                return
        if self.kind is Channel:
            try:
                value = Channel.parse(value).transport  # the host checks the device later
            except ValueError as error:
                raise UsageError(f"{where}: {error}.", "dlobd list channels") from None
        if not self.about.valid:
            return
        registry = REGISTRIES[str(self.about.valid)]
        remedy = f"dlobd list {registry.kind}"
        if value not in registry.names():
            raise UsageError(f"{where}: {unknown(registry.singular, value, registry.names())}", remedy)
        if why := registry.row(value).unavailable:
            raise UsageError(f"{where}: {self.name} {value} cannot be used by a job: {why}.", remedy)


def _plain(number: float) -> str:
    # `:g` rounds to six digits
    return str(int(number)) if number == int(number) else str(number)


def settings_of(kind: type) -> dict[str, Setting]:
    """Return the settings of a class by name, in the order of their declaration."""
    hints = get_type_hints(kind)
    return {
        field.name: Setting(field.name, hints[field.name], field.default, field.metadata["about"])
        for field in dataclasses.fields(kind)
    }


SETTINGS: Mapping[str, Setting] = settings_of(Experiment)

AXES = tuple(name for name, setting in SETTINGS.items() if setting.about.axis)
"""Settings that may be axes of a sweep."""


def split(override: str) -> tuple[str, str, Source]:
    """Split `KEY=VALUE` of `--set` into key, text and source. Raises UsageError if there is no `=`.

    A dot stands for `_`: `channel.library` is the key `channel_library`, because a file cannot have both a key
    `channel` and a table of that name.
    """
    typed, sign, text = override.partition("=")
    key = typed.strip().replace(".", "_")
    if not sign:
        raise UsageError(f"--set {override}: expected key=value.", f"--set {key}=VALUE")
    if key != typed.strip() and key not in SETTINGS:
        near = unknown("key", key, SETTINGS).partition("; ")[2]
        raise UsageError(f"--set {override}: Unknown key {typed.strip()!r}; {near}")
    return key, text.strip(), Source(f"--set {override}", option=True)


def parse(name: str, text: str, source: Source) -> Value:
    """Parse and check a value of the command line. Raises UsageError."""
    setting = _of(name, source.label)
    return setting.check(setting.parse(text, source), source.at(name))


def check(name: str, value: object, source: Source, stored: bool = False) -> Value:
    """Check key, type, range and registry of a value; return it. Raises UsageError."""
    where = source.at(name)
    if isinstance(value, dict):
        remedy = "dlobd sweep FILE" if name == "axes" else "put its keys at the top level"
        raise UsageError(f"{where}: unknown table [{name}]: an experiment has no tables.", remedy)
    return _of(name, where).check(value, where, stored)


def _of(name: str, where: str) -> Setting:
    if name not in SETTINGS:
        raise UsageError(f"{where}: {unknown('key', name, SETTINGS)}")
    return SETTINGS[name]


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words for a sentence: a, b and c."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))

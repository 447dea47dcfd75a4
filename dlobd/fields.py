"""Declares dataclass fields with description, unit and origin, and derives JSON, schema and documentation.

A class declares its fields once:

    @described()
    class Epoch:
        loss: float = member("Mean loss of its steps.", "own mark `epoch done` of the chief", unit="nats")

`json_schema` gives the JSON Schema of such a class, `decoded` builds it from JSON, and `plain` writes it as JSON.
Standard library only, because tracing imports this module on the cluster.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

T = TypeVar("T")

JsonSchema = dict[str, Any]

_hints = cache(get_type_hints)

_JSON_TYPES: Mapping[object, str] = {bool: "boolean", int: "integer", float: "number", NoneType: "null"}


@dataclass(frozen=True, slots=True)
class Description:
    """The documentation of a field.

    origin: formula from other members or evidence; for a value that is not computed, its source.
    limits: keywords of JSON Schema, such as `pattern`.
    valid: valid values of a setting: a range, or the kind of the registry that lists them.
    zero: True if 0 is valid in addition to the range.
    axis: True if the field may be an axis of a sweep.
    """

    text: str
    unit: str
    origin: str = ""
    limits: Mapping[str, object] = dataclasses.field(default_factory=dict)
    valid: tuple[float, float] | str = ""
    zero: bool = False
    axis: bool = True


def member(
    text: str,
    origin: str = "",
    *,
    unit: str = "",
    default: object = dataclasses.MISSING,
    minimum: float | None = 0,
    maximum: float | None = None,
    pattern: str = "",
) -> Any:
    """Declare a field. Numbers are at least `minimum`; None means no limit."""
    limits = {"minimum": minimum, "maximum": maximum, "pattern": pattern or None}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    return dataclasses.field(default=default, metadata={"about": Description(text, unit, origin, known)})


def setting(
    text: str,
    valid: tuple[float, float] | str = "",
    *,
    unit: str = "",
    default: object = dataclasses.MISSING,
    zero: bool = False,
    pattern: str = "",
    axis: bool = True,
) -> Any:
    """Declare a setting of an experiment. See `Description`."""
    limits: dict[str, object] = {"pattern": pattern} if pattern else {}
    if isinstance(valid, tuple):
        limits |= {"minimum": 0 if zero else valid[0], "maximum": valid[1]}
    about = Description(text, unit, limits=limits, valid=valid, zero=zero, axis=axis)
    return dataclasses.field(default=default, metadata={"about": about})


@dataclass_transform(frozen_default=True, field_specifiers=(member, setting))
def described(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Return a decorator for frozen dataclasses with fields declared by `member` or `setting`."""
    return dataclass(frozen=True, slots=True, kw_only=kw_only)


# ---- JSON


def json_schema(kind: Any) -> JsonSchema:
    """Return the JSON Schema of a class or type."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return {
            "type": "object",
            "properties": {
                field.name: _described(json_schema(hints[field.name]), field.metadata.get("about"))
                for field in dataclasses.fields(kind)
            },
            "required": [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING],
            "additionalProperties": False,
        }
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        choices = [json_schema(argument) for argument in arguments]
        plain_types = all(choice.keys() == {"type"} for choice in choices)
        return {"type": [choice["type"] for choice in choices]} if plain_types else {"anyOf": choices}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": json_schema(arguments[1])}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": json_schema(arguments[0])}
    if origin is tuple:
        size = len(arguments)
        return {"type": "array", "prefixItems": [*map(json_schema, arguments)], "minItems": size, "maxItems": size}
    return {"type": "string" if issubclass(kind, str) else _JSON_TYPES[kind]}


def _described(schema: JsonSchema, about: Description | None) -> JsonSchema:
    if about is None:
        return schema
    types = schema.get("type", [])
    number = {"integer", "number"} & {*([types] if isinstance(types, str) else types)}
    limits = {name: limit for name, limit in about.limits.items() if number or name == "pattern"}
    return {**schema, **limits, **({"description": about.text} if about.text else {})}


def decoded(kind: type[T], value: Mapping[str, object]) -> T:
    """Build a dataclass from a JSON object. Raises TypeError if a member is missing or unknown."""
    built: T = _decoded(kind, value)
    return built


def _decoded(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        parts = [part for part in arguments if get_origin(part) or dataclasses.is_dataclass(part)]
        kind = next((part for part in parts if len(parts) == 1 or value.keys() <= _hints(part).keys()), None)
        return value if kind is None else _decoded(kind, value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _decoded(hints.get(name), part) for name, part in value.items()})
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(_decoded(arguments[0], part) for part in value)
    if origin is tuple:
        return tuple(_decoded(part, item) for part, item in zip(arguments, value, strict=True))
    return value


def plain(value: object) -> Any:
    """Convert `value` to JSON types: dataclasses to objects, tuples to arrays."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value

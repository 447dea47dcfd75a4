"""Shape of a declared class for msgspec, which checks a large record in milliseconds."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec


def difference(value: object, kind: type) -> tuple[str, str] | None:
    """Compare a JSON value with a declared class. Return place and kind of the first difference, or None."""
    try:
        msgspec.convert(value, _shape(kind), dec_hook=_chosen)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        return place.strip(".`").replace("[", ".").replace("]", "").replace(".", "/") or "the top level", what
    return None


class _Choice:
    """Value of one of several classes, `kinds`: msgspec has no unions of classes."""

    kinds: tuple[Any, ...]


def _chosen(choice: type, value: object) -> object:
    assert issubclass(choice, _Choice)
    found = [difference(value, kind) for kind in choice.kinds]
    if None not in found:
        raise ValueError("; ".join(f"{what} at {place}" for place, what in filter(None, found)))
    return choice()


@cache
def _shape(kind: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints, fields = get_type_hints(kind), []
        for field in dataclasses.fields(kind):
            about = field.metadata.get("about")
            own = _limited(_shape(hints[field.name]), about.limits if about else {})
            fields.append((field.name, own) if field.default is dataclasses.MISSING else (field.name, own, None))
        return msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True, kw_only=True)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        classes = tuple(one for one in arguments if dataclasses.is_dataclass(one))
        if len(classes) > 1:
            return type("Choice", (_Choice,), {"kinds": classes})
        return Union[tuple(map(_shape, arguments))]  # noqa: UP007  of a tuple
    if origin is Mapping:
        return dict[str, _shape(arguments[1])]  # type: ignore[misc]
    if origin is tuple:
        return list[_shape(arguments[0])] if arguments[-1] is Ellipsis else tuple[tuple(map(_shape, arguments))]  # type: ignore[misc]
    return str if isinstance(kind, type) and issubclass(kind, str) else kind


def _limited(kind: Any, limits: Mapping[str, Any]) -> Any:
    """Return a type of numbers or texts with the limits of its field."""
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(_limited(one, limits) for one in get_args(kind))]  # noqa: UP007  of a tuple
    if kind in (int, float):
        return Annotated[kind, msgspec.Meta(ge=limits.get("minimum"), le=limits.get("maximum"))]
    return Annotated[kind, msgspec.Meta(pattern=limits["pattern"])] if kind is str and "pattern" in limits else kind

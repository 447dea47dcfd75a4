"""Declared fields and registries: schema, codec and documentation follow from one declaration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

import jsonschema
import pytest

from dlobd.errors import SetupError, UsageError
from dlobd.fields import decoded, described, json_schema, member, plain
from dlobd.record.run import Run
from dlobd.registry import Registry, Row
from docs.generate import numbers
from tests.records import run


@described()
class Part:
    """An example of a part."""

    ns: int = member("Length.", "end - start")
    name: Literal["a", "b"] | None = member("Name.", default=None)


@described()
class Whole:
    """An example of a record."""

    parts: tuple[Part, ...] = member("Parts.")
    pairs: tuple[tuple[str, int], ...] = member("Pairs.", unit="calls", default=())
    by_name: Mapping[str, float | None] = member("By name.", "a clock", unit="s", default=None)
    part: Part | None = member("One part.", default=None)


WHOLE = Whole((Part(1), Part(2, "b")), (("x", 3),), {"y": 1.5, "z": None}, Part(0))


def test_each_number_of_a_run_has_an_origin_and_is_read_as_written() -> None:
    assert decoded(Whole, json.loads(json.dumps(plain(WHOLE)))) == WHOLE
    assert Run.from_json(run().to_json()) == run()
    assert [n.path for n in numbers(Run) if not n.origin and not n.path.startswith("configuration.")] == []


@pytest.mark.parametrize(
    "change",
    [
        {"parts": None},
        {"parts": [{"ns": -1}]},
        {"parts": [{"ns": 1.5}]},
        {"parts": [{"ns": 1, "name": "c"}]},
        {"parts": [{"ns": 1, "more": 1}]},
        {"pairs": [["x"]]},
        {"pairs": [["x", 1, 2]]},
        {"by_name": {"y": "1"}},
        {"more": 1},
    ],
)
def test_the_schema_refuses_other_types_limits_and_names(change: dict[str, object]) -> None:
    validator = jsonschema.Draft202012Validator(json_schema(Whole))
    assert validator.is_valid(plain(WHOLE))
    assert not validator.is_valid({**plain(WHOLE), **change})


def test_each_number_is_documented() -> None:
    rows = [(number.path, number.unit, number.origin) for number in numbers(Whole)]
    assert rows == [
        ("parts[].ns", "ns", "end - start"),
        ("pairs[][]", "calls", ""),
        ("by_name.*", "s", "a clock"),
        ("part.ns", "ns", "end - start"),
    ]

    @described()
    class Silent:
        steps: int = member("")

    with pytest.raises(ValueError, match=r"Silent\.steps is not described"):
        list(numbers(Silent))


def _colours() -> Registry:
    return Registry(
        "colours",
        Row("red", "Red", "colorsys:rgb_to_hsv"),
        Row("green", "Green", "colorsys:rgb_to_hls", needs=("no_such_module_of_green",)),
        Row("blue", "Blue", unavailable="the paint is dry"),
        Row("plain", "Plain"),
    )


def test_members_are_listed_with_reasons_and_imported() -> None:
    assert [(row.name, row.title, row.reason()) for row in _colours()] == [
        ("red", "Red", None),
        ("green", "Green", "Python module 'no_such_module_of_green' is not installed"),
        ("blue", "Blue", "the paint is dry"),
        ("plain", "Plain", None),
    ]
    import colorsys

    assert colorsys.rgb_to_hsv is _colours().get("red")
    assert _colours().get("plain") is None


def test_an_unknown_name_is_answered_with_the_nearest_or_all() -> None:
    with pytest.raises(UsageError, match=r"Unknown colour 'gren'; did you mean 'green'\?"):
        _colours().get("gren")
    with pytest.raises(UsageError, match="it is one of: red, green, blue, plain"):
        _colours().get("xyzzy")


@pytest.mark.parametrize(("name", "why"), [("green", "no_such_module_of_green"), ("blue", "the paint is dry")])
def test_unavailable_member_cannot_be_used(name: str, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        _colours().get(name)

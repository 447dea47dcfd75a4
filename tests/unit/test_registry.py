import pytest

from dlobd.errors import SetupError, UsageError
from dlobd.registry import Registry, Row


def _colours() -> Registry:
    return Registry(
        "colours",
        Row("red", "Red", "colorsys:rgb_to_hsv"),
        Row("green", "Green", "colorsys:rgb_to_hls", needs=("no_such_module_of_green",)),
        Row("blue", "Blue", unavailable="the paint is dry"),
        Row("plain", "Plain"),
    )


def test_members_are_listed_with_reasons_and_imported() -> None:
    assert _colours().available() == [
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

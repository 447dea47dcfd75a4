import pytest

from dlobd.axes import REGISTRIES
from dlobd.errors import SetupError
from dlobd.experiment import files

WITHOUT_FIELD = {"places", "views"}
"""A place follows from scheduler and cluster; a view is for reading."""

_ROWS = [
    pytest.param(registry, row, id=f"{registry.kind}-{row.name}")
    for registry in REGISTRIES.values()
    for row in registry
]


@pytest.mark.parametrize(("registry", "row"), _ROWS)
def test_a_row_points_to_what_exists(registry, row) -> None:
    """A member that is listed as available can be imported; one without code gives None. What only lacks its data has
    its code."""
    if row.unavailable:  # with this version anywhere: that it is refused is all that can be tested
        with pytest.raises(SetupError, match="is not available"):
            registry.get(row.name)
        return
    if row.data_file and row.reason():
        found = registry.declared(row.name)
    elif reason := row.reason():
        pytest.skip(reason)
    else:
        found = registry.get(row.name)
    assert (found is None) == (row.target == "")
    assert found is None or callable(found)


@pytest.mark.parametrize(("field", "kind"), files.AXES.items())
def test_every_axis_of_an_experiment_has_a_registry(field: str, kind: str) -> None:
    """Each name in an experiment is checked against a registry, and each registry serves a field."""
    assert field in files.FIELDS
    assert kind in REGISTRIES
    assert set(files.AXES.values()) == REGISTRIES.keys() - WITHOUT_FIELD

import pytest

from dlobd.axes import REGISTRIES
from dlobd.errors import SetupError
from dlobd.experiment.settings import SETTINGS

WITHOUT_FIELD = {"places", "views"}
"""A place follows from scheduler and cluster; a view is for reading."""

_ROWS = [
    pytest.param(registry, row, id=f"{registry.kind}-{row.name}")
    for registry in REGISTRIES.values()
    for row in registry
]


@pytest.mark.parametrize(("registry", "row"), _ROWS)
def test_rows_of_registries_can_be_imported(registry, row) -> None:
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


def test_every_registry_serves_a_setting() -> None:
    kinds = {setting.about.valid for setting in SETTINGS.values() if isinstance(setting.about.valid, str)}
    assert kinds - {""} == REGISTRIES.keys() - WITHOUT_FIELD

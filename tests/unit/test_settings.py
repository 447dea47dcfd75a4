"""Settings of an experiment: everything follows from the declaration of the field."""

from __future__ import annotations

import dataclasses

import pytest

from dlobd.errors import UsageError
from dlobd.experiment import files
from dlobd.experiment.settings import Source, settings_of
from dlobd.fields import described, json_schema, setting
from dlobd.job.description import Job
from dlobd.schema import Experiment
from dlobd.user_file import MemberRef


@described(kw_only=True)
class Extended(Experiment):
    """An experiment with a new field."""

    patience: int = setting("Epochs without progress.", (1, 9), unit="epochs", default=3)
    twin: MemberRef = setting("Second model.", "models", default="mlp")


def test_a_new_field_needs_only_its_declaration() -> None:
    found = settings_of(Extended)
    patience, twin = found["patience"], found["twin"]
    assert patience.check(patience.parse("4", Source("--set")), "here") == 4
    with pytest.raises(UsageError, match="here: patience must be between 1 and 9, not 10"):
        patience.check(10, "here")
    with pytest.raises(UsageError, match="Unknown model 'mpl'; did you mean 'mlp'"):
        twin.check("mpl", "here")
    assert patience.row == ("`patience`", "`3`", "1 to 9", "epochs", "Epochs without progress.")
    schema = json_schema(Extended)["properties"]["patience"]
    assert schema == {"type": "integer", "minimum": 1, "maximum": 9, "description": "Epochs without progress."}


def test_a_job_has_each_field_of_its_experiment() -> None:
    names = {field.name for field in dataclasses.fields(Experiment)}
    assert names < {field.name for field in dataclasses.fields(Job)}


def test_names_keep_their_types() -> None:
    main = dataclasses.replace(files.load("softmax-mnist", ["channel=tcp@lo"]), model="net.py:build")
    assert (main.channel.transport, main.channel.device) == ("tcp", "lo")
    assert (main.model.path, main.model.attribute, main.dataset.path) == ("net.py", "build", "")
    assert dataclasses.asdict(main)["channel"] == "tcp@lo"

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dlobd.errors import UsageError
from dlobd.experiment import files
from dlobd.experiment.settings import Source, settings_of
from dlobd.fields import described, json_schema, setting
from dlobd.job.description import Job
from dlobd.schema import DEFAULTS, Experiment
from dlobd.user_file import MemberRef

MAIN = "softmax-mnist"


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def _refused(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(UsageError) as caught:
        files.load(_file(tmp_path, text), overrides)
    assert "\n" not in caught.value.line
    return caught.value.line.replace(str(tmp_path), "")


def test_every_shipped_experiment_loads_and_has_a_title() -> None:
    shipped = files.titles("experiment")
    assert {MAIN, "softmax-mnist-quick"} <= {name for name, _ in shipped}
    for name, title in shipped:
        assert files.load(name).name == name
        assert len(title) > 10


def test_files_overrides_and_defaults_give_the_experiment(tmp_path: Path) -> None:
    mine = files.load(_file(tmp_path, f'extends = "{MAIN}"\nseed = 7\n'))
    assert mine == dataclasses.replace(files.load(MAIN), name="mine", seed=7)
    path = _file(tmp_path, f'extends = "{MAIN}"\nseed = 7\n')
    mine = files.load(path, ["seed=8", "learning_rate=1", "name=other", "seed = 9"])
    assert (mine.seed, mine.learning_rate, mine.name) == (9, 1.0, "other")
    assert isinstance(mine.learning_rate, float)
    main = files.load(MAIN)
    assert files.from_dict(dataclasses.asdict(main)) == main


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(files.Experiment)])
def test_key_depends_on_every_field(field: str) -> None:
    main = files.load(MAIN)
    value = getattr(main, field)
    other = dataclasses.replace(main, **{field: f"{value}x" if isinstance(value, str) else value + 1})
    assert files.key(main) == files.key(dataclasses.replace(main))
    assert files.key(main) != files.key(other)


def test_a_file_may_leave_out_defaults(tmp_path: Path) -> None:
    main = files.load(MAIN)
    stored = {name: value for name, value in dataclasses.asdict(main).items() if name not in DEFAULTS}
    path = _file(tmp_path, "".join(f"{name} = {value!r}\n" for name, value in stored.items()))
    assert files.load(path) == main
    assert files.key(files.load(path)) == files.key(main)


def test_settings_of_the_training_that_go_together(tmp_path: Path) -> None:
    text = f'extends = "{MAIN}"\nepochs = 90\noptimiser = "momentum"\nmomentum = 0.9\nweight_decay = 1e-4\n'
    step = 'schedule = "step"\nnum_epochs_per_decay = 30\nlearning_rate_decay_factor = 0.1\nwarmup_epochs = 5\n'
    mine = files.load(_file(tmp_path, text + step))
    assert (mine.optimiser, mine.momentum, mine.weight_decay) == ("momentum", 0.9, 1e-4)
    assert (mine.schedule, mine.num_epochs_per_decay, mine.learning_rate_decay_factor) == ("step", 30.0, 0.1)
    other = files.load(_file(tmp_path, text), ["schedule=cosine", "warmup_epochs=2.5"])
    assert (other.schedule, other.warmup_epochs) == ("cosine", 2.5)
    assert files.from_dict(dataclasses.asdict(mine)) == mine


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("worker = 3", "/mine.toml:2: Unknown key 'worker'; did you mean 'workers'?"),
        ("[workers]\nn = 3", "/mine.toml:2: unknown table [workers]: an experiment has no tables."),
        ('workers = "3"', "/mine.toml:2: workers must be an integer, not a string ('3')."),
        ("workers = true", "/mine.toml:2: workers must be an integer, not a boolean (True)."),
        ("\n\nmodel = 3", "/mine.toml:4: model must be a string, not an integer (3)."),
        ('model = "softmax-regresion"', "Unknown model 'softmax-regresion'; did you mean 'softmax-regression'?"),
        ("learning_rate = nan", "/mine.toml:2: learning_rate must be between 1e-12 and 1000000, not nan."),
        ("workers = 0", "/mine.toml:2: workers must be between 1 and 1000, not 0."),
        ('name = "a/b"', "/mine.toml:2: name 'a/b' may contain only letters, digits"),
        ("batch_size = 7", "train_samples 60000 is not a multiple of workers x batch_size = 14"),
        ("train_samples = 60200", "train_samples 60200 exceeds the 60000 samples of mnist."),
        ('\noptimiser = "momentum"', "/mine.toml:3: optimiser momentum with momentum 0 is sgd."),
        ("momentum = 0.9", "/mine.toml:2: momentum 0.9 has no effect with optimiser sgd."),
        ('schedule = "step"', "/mine.toml:2: schedule step needs num_epochs_per_decay above 0."),
        (
            'num_epochs_per_decay = 30\nschedule = "step"',
            "/mine.toml:3: schedule step needs learning_rate_decay_factor above 0.",
        ),
        ("num_epochs_per_decay = 30", "/mine.toml:2: num_epochs_per_decay 30 has no effect with schedule constant."),
        (
            'schedule = "cosine"\nlearning_rate_decay_factor = 0.1',
            "/mine.toml:3: learning_rate_decay_factor 0.1 has no effect with schedule cosine.",
        ),
        ("batch_size = 30001", "batch 30001 per worker, 60002 in total, exceeds train_samples 60000."),
        (
            'device = "gpu"\nscheduler = "local-cluster"',
            "/mine.toml:2: device gpu needs a scheduler that allocates GPUs; local-cluster does not.",
        ),
        ("target_accuracy = 0.9", "/mine.toml:2: target_accuracy 0.9 needs evaluate_every_epochs above 0"),
        ("evaluate_every_epochs = 3", "/mine.toml:2: evaluate_every_epochs 3 exceeds epochs, which is 2."),
        ("max_seconds = 600", "/mine.toml:2: max_seconds 600 must be less than timeout_s, which is 600."),
        ("warmup_epochs = 2", "/mine.toml:2: warmup_epochs 2 must be less than epochs, which is 2."),
        ("workers = ", "/mine.toml is not valid TOML: Invalid value (at line 2"),
        ("workers = 2\nworkers = 3", "/mine.toml is not valid TOML:"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    assert line in _refused(tmp_path, f'extends = "{MAIN}"\n{text}\n')


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("seed", "--set seed: expected key=value."),
        ("sed=3", "--set sed=3: Unknown key 'sed'; did you mean 'seed'?"),
        ("seed=three", "--set seed=three: seed must be an integer, not 'three'."),
    ],
)
def test_a_wrong_override_is_refused_in_one_line(tmp_path: Path, override: str, line: str) -> None:
    assert line in _refused(tmp_path, f'extends = "{MAIN}"\n', override)


def test_files_without_base_or_text_are_refused(tmp_path: Path) -> None:
    line = _refused(tmp_path, "workers = 2\nseed = 1\n")
    assert "missing: scheduler, launcher," in line
    assert "seed" not in line
    assert 'extends = "softmax-mnist"' in line
    assert "/mine.toml:1: extends: Unknown experiment 'softmax-mnis'" in _refused(tmp_path, 'extends = "softmax-mnis"')
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        files.load(path)


@pytest.mark.parametrize(
    ("ref", "line"),
    [
        ("softmax-mnst", "Unknown experiment 'softmax-mnst'; did you mean 'softmax-mnist"),
        ("no/such/file.toml", "experiment file no/such/file.toml does not exist."),
        ("/", "experiment file / is a directory."),
    ],
)
def test_an_experiment_that_does_not_exist(ref: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        files.load(ref)
    assert line in caught.value.line


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
    assert (patience.default, patience.values, patience.about.unit) == (3, "1 to 9", "epochs")
    schema = json_schema(Extended)["properties"]["patience"]
    assert schema == {"type": "integer", "minimum": 1, "maximum": 9, "description": "Epochs without progress."}


def test_jobs_have_all_fields_and_names_keep_their_types() -> None:
    names = {field.name for field in dataclasses.fields(Experiment)}
    assert names < {field.name for field in dataclasses.fields(Job)}
    main = dataclasses.replace(files.load("softmax-mnist", ["channel=tcp@lo"]), model="net.py:build")
    assert (main.channel.transport, main.channel.device) == ("tcp", "lo")
    assert (main.model.path, main.model.attribute, main.dataset.path) == ("net.py", "build", "")
    assert dataclasses.asdict(main)["channel"] == "tcp@lo"

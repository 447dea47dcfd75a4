import gzip
import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dlobd.bundle import files, reading, redaction, store
from dlobd.errors import BundleError, UsageError
from tests.captured import copy_of, recomputed
from tests.recorded import read_all
from tests.records import run_record


@pytest.fixture
def bundle(tmp_path: Path) -> store.Bundle:
    return store.create(tmp_path / "runs", "softmax-mnist")


def _write(bundle: store.Bundle) -> None:
    bundle.write(run_record(bundle.run_id))


def test_a_new_bundle_has_an_id_and_three_folders(tmp_path: Path) -> None:
    bundle = store.create(tmp_path, "mine", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert bundle.path.parent == tmp_path / "mine"
    assert bundle.run_id.startswith("20260102T030405Z-")
    assert store.RUN_ID.fullmatch(bundle.run_id)
    assert {"spans", "evidence", "logs"} == {path.name for path in bundle.path.iterdir()}
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no bundle can be created"):
        store.create(tmp_path / "file", "mine")


def test_a_record_is_read_as_written_and_a_refused_one_changes_nothing(bundle: store.Bundle) -> None:
    record = run_record(bundle.run_id)
    bundle.write(record)
    assert bundle.read_json() == record
    assert sorted(path.name for path in bundle.path.iterdir()) == ["evidence", "logs", "run.json", "spans"]
    _write(bundle)
    with pytest.raises(BundleError):
        bundle.write(run_record(bundle.run_id, status="fine"))
    assert bundle.read_json()["status"] == "ok"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"status": "fine"}, "status"),
        ({"wall_ns": 1.5}, "wall_ns"),
        ({"surprise": 1}, "the top level"),
        ({"reason": "two\nlines"}, "reason"),
        ({"clips": [{"kind": "crossing"}]}, "clips/0"),
        ({"experiment_key": "short"}, "experiment_key"),
        ({"metrics": {"steps": "1"}}, "metrics/steps"),
    ],
)
def test_a_record_that_breaks_the_schema_is_refused(changes: dict[str, object], where: str) -> None:
    with pytest.raises(BundleError, match=f"does not follow its schema at {where}"):
        store.validate(run_record(**changes), "x")


def test_sums_that_do_not_match_are_refused() -> None:
    with pytest.raises(BundleError, match="sum to 1000000000 ns, not to the wall time of 1000000001 ns"):
        store.validate(run_record(wall_ns=1_000_000_001), "x")
    record = run_record()
    record["layers"][0]["measured_ns"] += 1
    with pytest.raises(BundleError, match="of spark sum to 600000001, not to 600000000 ns"):
        store.validate(record, "x")


@pytest.mark.parametrize("version", [0, 2, 10])
def test_another_schema_version_is_refused(bundle: store.Bundle, version: int) -> None:
    (bundle.path / "run.json").write_text(json.dumps(run_record(schema_version=version)))
    with pytest.raises(BundleError, match=rf"schema version {version}; this dlobd reads 1\. Next: read it with"):
        bundle.read_json()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": null}', "\xff\xfe"])
def test_a_damaged_record_is_one_line(bundle: store.Bundle, text: str) -> None:
    (bundle.path / "run.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BundleError, match="damaged"):
        bundle.read_json()


def test_a_bundle_without_record_or_hashes_is_one_line(bundle: store.Bundle) -> None:
    with pytest.raises(BundleError, match=r"run\.json cannot be read: No such file"):
        bundle.read_json()
    with pytest.raises(BundleError, match="has no hashes"):
        bundle.verify()


def test_a_sealed_bundle_verifies_anywhere(bundle: store.Bundle, tmp_path: Path) -> None:
    """Hashes are relative: a copied bundle verifies, by dlobd and by sha256sum."""
    _write(bundle)
    bundle.add_bytes(b"hello\n", "logs/deep/driver.log")
    bundle.seal()
    copy = store.Bundle(Path(shutil.copytree(bundle.path, tmp_path / "elsewhere" / bundle.run_id)))
    assert copy.verify() == []
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "hashes"], cwd=copy.path, capture_output=True, timeout=30
    )
    assert done.returncode == 0


def test_verify_names_what_was_changed_removed_and_added(bundle: store.Bundle) -> None:
    _write(bundle)
    bundle.add_bytes(b"a", "logs/a")
    bundle.add_bytes(b"b", "logs/b")
    bundle.seal()
    (bundle.logs / "a").write_bytes(b"A")
    (bundle.logs / "b").unlink()
    (bundle.logs / "c").write_bytes(b"c")
    (bundle.path / "trace.json").write_text("{}")
    assert bundle.verify() == ["logs/a: changed", "logs/b: missing", "logs/c: not in hashes"]


@pytest.mark.parametrize("name", ["../x", "run.json", "logs/../../x", "/etc/x"])
def test_nothing_is_added_outside_the_parts(bundle: store.Bundle, name: str) -> None:
    with pytest.raises(ValueError, match="does not lie in"):
        bundle.add_bytes(b"", name)


def test_find_by_path_id_prefix_and_latest(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    first = store.create(out, "zebra", datetime(2026, 1, 1, tzinfo=UTC))
    last = store.create(out, "ant", datetime(2026, 1, 2, tzinfo=UTC))
    _write(last)
    for ref in (last.path, str(last.path / "run.json"), last.run_id, "20260102", "latest"):
        assert store.find(ref, out) == last
    assert store.find(first.run_id, out) == first
    assert store.bundles(out) == [first, last]


@pytest.mark.parametrize(
    ("ref", "line"),
    [
        ("2026", "matches 2 runs"),
        ("1999", "there is no run 1999"),
        ("", "there is no run"),
        ("no/path", "there is no run"),
    ],
)
def test_find_needs_a_reference_to_exactly_one_run(tmp_path: Path, ref: str, line: str) -> None:
    for day in (1, 2):
        store.create(tmp_path, "mine", datetime(2026, 1, day, tzinfo=UTC))
    with pytest.raises(BundleError, match=line):
        store.find(ref, tmp_path)


def test_a_directory_of_runs_names_one(tmp_path: Path) -> None:
    last = [store.create(tmp_path / "runs", "mine", datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2)][-1]
    for path in (tmp_path / "runs", tmp_path / "runs" / "mine"):
        with pytest.raises(BundleError, match=f"{path} is a directory of runs, such as {last.path}"):
            store.find(path, tmp_path)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (
            rb"{'executor_id': 0, 'authkey': b'\x8d\'s\xff', 'host': 'h'}",
            rb"{'executor_id': 0, 'authkey': '[redacted]', 'host': 'h'}",
        ),
        (rb"""authkey=b"it's \" it", port=5""", rb"""authkey="[redacted]", port=5"""),
        (b"TFManager authkey=0123abcd port=5", b"TFManager authkey=[redacted] port=5"),
        (b'{"password": "a,b", "user": "u"}', b'{"password": "[redacted]", "user": "u"}'),
        (
            b'["spark.authenticate.secret","s3"],["spark.app.name","n"]',
            b'["spark.authenticate.secret","[redacted]"],["spark.app.name","n"]',
        ),
        (b"curl --token abc --verbose", b"curl --token [redacted] --verbose"),
        (b"http://h/x?api_key=abc&user=u", b"http://h/x?api_key=[redacted]&user=u"),
        (
            b"<name>ssl.keystore.password</name>\n <value>pw</value>",
            b"<name>ssl.keystore.password</name>\n <value>[redacted]</value>",
        ),
        (rb'{"line": "{\"token\": \"abc\", \"n\": 1}"}', rb'{"line": "{\"token\": \"[redacted]\", \"n\": 1}"}'),
        (b"AWS_SECRET_ACCESS_KEY=abc", b"AWS_SECRET_ACCESS_KEY=[redacted]"),
    ],
)
def test_only_secrets_are_hidden(text: bytes, hidden: bytes) -> None:
    assert redaction.redact(text) == hidden


@pytest.mark.parametrize(
    "line",
    [
        b"INFO security.NMTokenSecretManagerInRM: Sending NMToken for nodeId : 127.0.0.1:4 for container : c_01\n",
        b"INFO security.BaseNMTokenSecretManager: Rolling master-key for container-tokens, got key with id 5\n",
        b"tokens per second 5, tokenizer=fast\n",
        b"application_1_0001 State change from ACCEPTED to RUNNING on event = REGISTERED\n",
    ],
)
def test_lines_that_importers_read_are_not_touched(line: bytes) -> None:
    assert redaction.redact(line) == line


def test_secrets_are_redacted_in_json_logs_and_command_lines(bundle: store.Bundle, tmp_path: Path) -> None:
    text = json.dumps({"spark.yarn.secret": 'a"b\\', "list": [["x.password", "p'q"]], "n": 1}).encode()
    assert json.loads(redaction.redact(text)) == {
        "spark.yarn.secret": "[redacted]",
        "list": [["x.password", "[redacted]"]],
        "n": 1,
    }
    log, binary = tmp_path / "stderr", tmp_path / "picture"
    log.write_bytes(b"authkey=abc\n")
    binary.write_bytes(b"\0token=abc")
    assert bundle.add(log, "logs/stderr").read_bytes() == b"authkey=[redacted]\n"
    assert bundle.add(binary, "evidence/picture").read_bytes() == b"\0token=abc"
    words = ["--epochs", "3", "--api-token", "abc", "spark.my.password=xyz", "--name", "token"]
    assert redaction.redact_words(words) == [
        *("--epochs", "3", "--api-token", "[redacted]", "spark.my.password=[redacted]", "--name", "token")
    ]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1 << 20])
@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_a_file_is_redacted_in_pieces_of_any_size(
    bundle: store.Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, line_break: str
) -> None:
    """The copy of a file needs no memory for the whole file. No piece ends inside a line, or between a name and its
    value."""
    lines = [
        "a line",
        "password=geheim",
        "",
        "<name>my.secret</name>",
        "<value>geheim</value>",
        "token: geheim",
        "last",
    ]
    text = line_break.join(lines * 3)
    source = tmp_path / "driver.log"
    source.write_bytes(text.encode())
    monkeypatch.setattr(store, "PIECE_BYTES", size)
    found = bundle.add(source, "logs/driver.log").read_bytes()
    assert found == redaction.redact(text.encode())
    assert b"geheim" not in found
    assert [path.name for path in bundle.logs.iterdir()] == ["driver.log"]


def test_a_binary_file_is_copied_as_it_is(bundle: store.Bundle, tmp_path: Path) -> None:
    source = tmp_path / "core"
    source.write_bytes(b"\0 password=x\n" * 9)
    assert bundle.add(source, "logs/core").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(("mode", "expected"), [("client", "logs/driver.stdout"), ("cluster", "c_1_02_000001/stdout")])
def test_the_output_of_a_script_is_that_of_its_driver(mode: str, expected: str, tmp_path: Path) -> None:
    bundle = store.create(tmp_path, "mine")
    assert bundle.output(mode) is None
    names = ("c_1_01_000001", "c_1_02_000001", "c_1_02_000002")
    for name in ("driver.stdout", *(f"containers/{name}/stdout" for name in names)):
        bundle.add_bytes(b"x", f"logs/{name}")
    assert str(bundle.output(mode)).endswith(expected)


def span_files(bundle: store.Bundle) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(bundle.spans.rglob("*")) if path.is_file()}


def test_compressed_spans_give_the_same_record(tmp_path: Path) -> None:
    bundle = store.Bundle(copy_of("quick-run", tmp_path))
    before, plain = recomputed(bundle), span_files(bundle)
    bundle.compress_spans()
    noted = json.loads((bundle.path / files.COLLECTED).read_text())
    bundle.note_collected(noted["missing"], noted["metrics"])
    assert recomputed(bundle) == before
    assert before["overhead"]["span_bytes"] == sum(map(len, plain.values()))
    packed = span_files(bundle)
    assert {path: gzip.decompress(data) for path, data in packed.items()} == {
        path.with_name(f"{path.name}.gz"): data for path, data in plain.items()
    }
    bundle.compress_spans()
    assert span_files(bundle) == packed


def test_spans_stay_as_they_are_on_a_full_disk(tmp_path: Path) -> None:
    bundle = store.Bundle(copy_of("quick-run", tmp_path))
    plain = span_files(bundle)
    for path in plain:
        path.with_name(f".{path.name}.part").symlink_to("/dev/full")
    bundle.compress_spans()
    assert span_files(bundle) == plain


def test_a_kill_during_compression_duplicates_no_process(tmp_path: Path) -> None:
    bundle = store.Bundle(copy_of("quick-run", tmp_path))
    plain = span_files(bundle)
    processes = len(read_all(bundle.spans))
    bundle.compress_spans()
    for path, data in plain.items():
        path.write_bytes(data)
    assert len(read_all(bundle.spans)) == processes


def test_a_damaged_compressed_file_ends_where_it_is_damaged(tmp_path: Path) -> None:
    lines = [b'{"k":"%d"}' % number for number in range(200_000)]
    path = tmp_path / "spans-1-2.jsonl.gz"
    packed = gzip.compress(b"\n".join(lines) + b"\n")
    for size in range(0, len(packed), len(packed) // 50):
        path.write_bytes(packed[:size])
        found = [line for block in reading.blocks(path) for line in block]
        whole = found[:-1]  # the last line may be cut
        assert whole == lines[: len(whole)]
        assert len(whole) >= len(lines) * (size / len(packed) - 0.1)
        path.write_bytes(packed[:size] + b"\0" * 100)
        damaged = [line for block in reading.blocks(path) for line in block]
        assert damaged[: len(whole)] == whole
    path.write_bytes(packed + b"more")
    assert [line for block in reading.blocks(path) for line in block] == lines


def test_a_compressed_file_is_read_in_blocks(tmp_path: Path) -> None:
    """A kilobyte may have a megabyte of lines: the reader never has all of them."""
    path = tmp_path / "spans-1-2.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"k":"x"}\n' * (3 * reading.BLOCK_BYTES // 10)))
    sizes = [sum(map(len, block)) + len(block) for block in reading.blocks(path)]
    assert max(sizes) <= reading.BLOCK_BYTES + 100
    assert sum(sizes) == 3 * reading.BLOCK_BYTES // 10 * 10

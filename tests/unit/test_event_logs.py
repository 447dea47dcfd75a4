"""Event logs as clusters write them: in Spark's codecs, rolling, in other directories, and switched off."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path

import pytest

from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.hadoop.spark_codecs import CODECS, decompress
from dlobd.run.collect import event_logs

APP = "application_1795717270784_0021"
SAMPLES = json.loads((Path(__file__).parents[1] / "data" / "event-log-codecs.json").read_text())
"""The beginning of data/event-log.jsonl, compressed by the CompressionCodec of Spark 4.3."""
PLAIN = lzma.decompress(base64.b64decode(SAMPLES["plain.xz"]))


def sample(codec: str) -> bytes:
    return base64.b64decode(SAMPLES[codec])


def in_hdfs(top: str = "/logs", /, **contents: bytes) -> event_logs.Files:
    """Return files in memory; a double underscore is a slash."""
    paths = {f"{top}/{name.replace('__', '/')}".replace("//", "/"): content for name, content in contents.items()}

    def names(path: str) -> list[str]:
        below = f"{path.rstrip('/')}/"
        return sorted({name.removeprefix(below).split("/")[0] for name in paths if name.startswith(below)})

    return event_logs.Files(names, lambda path: paths[path])


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_of_spark_is_read(codec: str) -> None:
    assert decompress(sample(codec), codec) == PLAIN
    assert decompress(sample(codec) * 2, codec) == PLAIN * 2
    with pytest.raises(ValueError, match=r"format|begin"):
        decompress(PLAIN, codec)


@pytest.mark.parametrize("codec", ["lz4", "snappy", "lzf"])
def test_a_stream_that_a_killed_driver_left_is_read_to_its_last_block(codec: str) -> None:
    assert decompress(sample(codec) + sample(codec)[:-40], codec) == PLAIN


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({APP: b"a"}, b"a"),
        ({f"{APP}.inprogress": b"a", f"{APP}_1": b"b", f"{APP}_2.inprogress": b"c", f"{APP}0": b"d"}, b"c"),
        ({f"{APP}.inprogress": b"a", APP: b"b"}, b"b"),
        ({f"{APP}_1.zstd": "zstd"}, PLAIN),
        ({f"{APP}.lz4.inprogress": "lz4"}, PLAIN),
        (
            {f"eventlog_v2_{APP}__events_10_{APP}": b"c", f"eventlog_v2_{APP}__events_2_{APP}": b"b",
             f"eventlog_v2_{APP}__events_1_{APP}": b"a", f"eventlog_v2_{APP}__appstatus_{APP}": b"x"},
            b"abc",
        ),
        (
            {f"eventlog_v2_{APP}_1__events_1_{APP}_1.zstd": b"old",
             f"eventlog_v2_{APP}_1__events_2_{APP}_1.zstd": b"old",
             f"eventlog_v2_{APP}_1__events_2_{APP}_1.zstd.compact": "zstd",
             f"eventlog_v2_{APP}_1__events_3_{APP}_1.zstd": "zstd"},
            PLAIN * 2,
        ),
    ],
)  # fmt: skip
def test_the_log_of_the_last_attempt_is_joined(contents: dict[str, bytes | str], expected: bytes) -> None:
    found = {name: sample(content) if isinstance(content, str) else content for name, content in contents.items()}
    assert event_logs.read(in_hdfs(**found), "/logs", APP) == expected


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(ValueError, match=r"codec brotli is unknown; set spark\.eventLog\.compression\.codec=zstd"):
        event_logs.read(in_hdfs(**{f"{APP}.brotli": b""}), "/logs", APP)


LINE = "1000000 2026-11-26T10:00:00.000 INFO "


def bundle(path: Path, text: str, name: str = files.DRIVER_LOG) -> Bundle:
    made = Bundle(path)
    made.add_bytes(f"{LINE}spark.SparkContext [main]: Running Spark version 4.3.0\n{text}\n".encode(), name)
    return made


@pytest.mark.parametrize(
    ("uri", "where", "name"),
    [
        (f"hdfs://nn:8020/history/{APP}.zstd.inprogress", "/history", f"{APP}.zstd"),
        (f"hdfs://nn:8020/eventlog_v2_{APP}/events_1_{APP}.zstd", "/", f"eventlog_v2_{APP}__events_1_{APP}.zstd"),
    ],
)
@pytest.mark.parametrize("log", [files.DRIVER_LOG, f"{files.CONTAINER_LOGS}/container_1_0021_01_000001/spark.log"])
def test_the_log_is_where_the_driver_wrote_it(tmp_path: Path, uri: str, where: str, name: str, log: str) -> None:
    made = bundle(tmp_path, f"{LINE}history.RollingEventLogFilesWriter [main]: Logging events to {uri}", log)
    event_logs.collect(APP, "/spark-events", in_hdfs(where, **{name: sample("zstd")}), made)
    assert (made.path / files.EVENT_LOG).read_bytes() == PLAIN


def test_a_log_on_this_machine_is_read(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / f"{APP}.snappy").write_bytes(sample("snappy"))
    uri = f"file:{tmp_path}/history/{APP}.snappy.inprogress"
    made = bundle(tmp_path / "bundle", f"{LINE}history.SingleEventLogFileWriter [main]: Logging events to {uri}")
    event_logs.collect(APP, "/spark-events", in_hdfs(), made)
    assert (made.path / files.EVENT_LOG).read_bytes() == PLAIN


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the driver's log names none"),  # for example, YARN rejected the application
        ("DAGScheduler: Got job 0 (count)", r"switched it off; omit spark\.eventLog\.enabled=false"),
        (
            "EventLogFileWriter: Logging events to s3a://bucket/logs/app",
            r"not s3a://bucket/logs/app; omit spark\.event",
        ),
        ("EventLogFileWriter: Logging events to file:/nowhere/app", r"is on the driver's machine; omit spark\.event"),
        ("EventLogFileWriter: Logging events to hdfs://nn/logs/app", rf"/logs has none of {APP}"),
    ],
)
def test_a_log_that_cannot_be_read_has_a_reason(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        event_logs.collect(APP, "/spark-events", in_hdfs(), bundle(tmp_path, text))


def test_without_the_driver_s_log_the_default_directory_is_searched(tmp_path: Path) -> None:
    event_logs.collect(APP, "/spark-events", in_hdfs("/spark-events", **{APP: PLAIN}), Bundle(tmp_path))
    assert (tmp_path / files.EVENT_LOG).read_bytes() == PLAIN

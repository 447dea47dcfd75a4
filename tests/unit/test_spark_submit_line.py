"""spark-submit's line: taken apart and put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.errors import UsageError
from dlobd.experiment.spark_submit_line import megabytes, merged, parse

OURS = (
    *("/opt/bin/spark-submit", "--master", "yarn", "--num-executors", "2", "--executor-memory", "512m"),
    *("--driver-java-options", "-Xlog:a", "--files", "script.py", "--conf", "spark.executor.extraJavaOptions=-Xlog:b"),
    *("--conf", "spark.ui.port=0", "own.py", "tfos", "script.py"),
)


def after(line: tuple[str, ...], option: str) -> list[str]:
    return [line[i + 1] for i, word in enumerate(line) if word == option]


def test_a_line_is_taken_apart() -> None:
    line = parse(["x/spark-submit", "--executor-memory=1g", "-c", "a=b=c", "--verbose", "s.py", "--master", "m"])
    assert line.options == (("--executor-memory", "1g"), ("--conf", "a=b=c"), ("--verbose", None))
    assert (line.script, line.arguments) == ("s.py", ("--master", "m"))
    assert line.settings == {"spark.executor.memory": "1g", "a": "b=c"}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "needs a spark-submit command, but there is none"),
        (["python", "s.py"], "not 'python'"),
        (["spark-submit"], "names no script"),
        (["spark-submit", "--executor-memory"], "--executor-memory needs a value"),
        (["spark-submit", "--memory", "1g", "s.py"], "has no option --memory"),
        (["spark-submit", "--conf", "a", "s.py"], "expected KEY=VALUE"),
        (["spark-submit", "--properties-file", "/nowhere", "s.py"], "/nowhere cannot be read: No such file"),
    ],
)
def test_what_is_no_line_is_refused(words: list[str], what: str) -> None:
    with pytest.raises(UsageError) as error:
        _ = parse(words).settings
    assert what in error.value.line


def test_the_person_has_the_last_word() -> None:
    theirs = ("--conf", "spark.executor.instances=3", "--executor-memory", "1g", "--queue", "q")
    line = merged(OURS, theirs)
    assert line[0] == "/opt/bin/spark-submit"
    assert line[-3:] == ("own.py", "tfos", "script.py")
    assert "--num-executors" not in line
    assert after(line, "--executor-memory") == ["1g"]
    assert after(line, "--queue") == ["q"]
    assert "spark.executor.instances=3" in after(line, "--conf")
    assert "spark.ui.port=0" in after(line, "--conf")


def test_what_both_need_is_joined() -> None:
    theirs = ("--conf", "spark.driver.extraJavaOptions=-Da=1", "--files", "a,b")
    line = merged(OURS, (*theirs, "-c", "spark.executor.extraJavaOptions=-Db=2"))
    assert after(line, "--driver-java-options") == ["-Da=1 -Xlog:a"]
    assert after(line, "--files") == ["a,b,script.py"]
    executor = [value for value in after(line, "--conf") if "executor.extraJava" in value]
    assert executor == ["spark.executor.extraJavaOptions=-Db=2 -Xlog:b"]
    assert not [value for value in after(line, "--conf") if value.startswith("spark.driver.extraJava")]


def test_a_properties_file_counts_as_said(tmp_path: Path) -> None:
    file = tmp_path / "p.conf"
    file.write_text("# comment\nspark.ui.port 4050\nspark.executor.memory=2g\nspark.files : c\n")
    line = merged(OURS, ("--properties-file", str(file), "--executor-memory", "1g"))
    assert "spark.ui.port=0" not in line
    assert after(line, "--executor-memory") == ["1g"]
    assert after(line, "--files") == ["c,script.py"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("1g", 1024), ("2GB", 2048), ("2048k", 2), ("1t", 1 << 20), ("x", None), ("", None)],
)
def test_sizes_are_read_as_spark_reads_them(text: str, size: int | None) -> None:
    assert megabytes(text) == size

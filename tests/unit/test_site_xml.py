"""Site files are parsed like Hadoop's Configuration does it. The expected values are those of Hadoop 3.5.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlobd.errors import UsageError
from dlobd.hadoop.site_files import HadoopConf, read_site


def site(path: Path, *content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = '<?xml version="1.0"?>\n<configuration xmlns:xi="http://www.w3.org/2001/XInclude">'
    path.write_text(f"{head}{''.join(content)}</configuration>")
    return path


def pair(name: str, value: str, more: str = "") -> str:
    return f"<property><name>{name}</name><value>{value}</value>{more}</property>"


def include(href: object, inside: str | None = None) -> str:
    fallback = "" if inside is None else f"<xi:fallback>{inside}</xi:fallback>"
    return f'<xi:include href="{href}">{fallback}</xi:include>'


def test_files_that_only_include_others_are_read(tmp_path: Path) -> None:
    """By an absolute path, by a relative path with a space, by a URL, and as the fallback of a missing file."""
    central = tmp_path / "all clusters"
    site(central / "core.xml", pair("fs.defaultFS", "hdfs://nn:8020"))
    site(central / "hdfs.xml", pair("dfs.namenode.http-address", "nn:9870"))
    site(central / "yarn.xml", pair("yarn.resourcemanager.hostname", "rm"))
    conf = tmp_path / "conf"
    site(conf / "core-site.xml", include(central / "core.xml"))
    site(conf / "hdfs-site.xml", include("/nowhere/hdfs.xml", include("../all clusters/hdfs.xml")))
    site(conf / "yarn-site.xml", include((central / "yarn.xml").as_uri()))
    read = HadoopConf.read(conf)
    assert read.fs_uri == "hdfs://nn:8020"
    assert [address.netloc for address in read.namenodes()] == ["nn:9870"]
    assert [address.netloc for address in read.resourcemanagers()] == ["rm:8088"]


def test_an_included_file_includes_relative_to_the_site_file(tmp_path: Path) -> None:
    site(tmp_path / "sub" / "nested.xml", pair("nested", "1"), include("sub/deeper.xml"))
    site(tmp_path / "sub" / "deeper.xml", pair("deeper", "1"))
    top = site(tmp_path / "core-site.xml", include("sub/nested.xml"))
    assert read_site(top) == {"nested": "1", "deeper": "1"}


def test_a_fallback_counts_only_for_a_missing_file(tmp_path: Path) -> None:
    site(tmp_path / "there.xml", pair("a", "1"))
    nothing, deep = include("m1.xml", ""), include("m2.xml", include("m3.xml", pair("deep", "1")))
    top = site(tmp_path / "core-site.xml", include("there.xml", pair("unused", "1")), nothing, deep, pair("b", "1"))
    assert read_site(top) == {"a": "1", "deep": "1", "b": "1"}


def test_a_final_property_outlasts_later_files_but_not_text_that_is_not_true(tmp_path: Path) -> None:
    final = "<final>true</final>"
    core = site(
        tmp_path / "core-site.xml",
        pair("a", "1", final),
        pair("b", "1", "<final> true </final>"),
        '<property name="c" value="1" final="true"/>',
        pair("fs.defaultFS", "hdfs://a:1", final),
    )
    later = "".join(pair(name, "2") for name in ("a", "b", "c", "fs.default.name", "dfs.http.address"))
    hdfs = site(tmp_path / "hdfs-site.xml", later)
    assert read_site(core, hdfs) == {
        "a": "1",
        "b": "2",
        "c": "1",
        "fs.defaultFS": "hdfs://a:1",
        "dfs.namenode.http-address": "2",
    }


def test_values_are_those_of_hadoop(tmp_path: Path) -> None:
    odd = "<property><name> odd </name><value>a<!-- comment -->b</value></property>"
    odd += "<property><name>none</name></property>"
    top = site(tmp_path / "core-site.xml", odd, pair("odd2", "1"), pair("odd2", ""), "<other/>")
    assert read_site(top) == {"odd": "ab", "odd2": "1"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env.DL_NONE}", "${env.DL_NONE}"),
        ("${env.DL_NONE:-def}", "def"),
        ("${env.DL_EMPTY:-def}", "def"),
        ("${env.DL_EMPTY-def}", ""),
        ("${env.DL_NONE-a-b}", "a-b"),
        ("${env.DL_NONE:-}", ""),
        ("${env.DL_NONE:-a b}", "${env.DL_NONE:-a b}"),
        ("${env.DL_NONE:x}", "${env.DL_NONE:x}"),
        ("${env.${x}}", "${env.1}"),
        ("${x}${x}-${unknown}-${x}", "11-${unknown}-${x}"),
        ("${java.io.tmpdir}/a", "/tmp/a"),
        ("${env.DL_HOST}-${x}", "h-1"),
        ("${key}", "${key}"),
    ],
)
def test_variables_are_replaced_as_in_hadoop(monkeypatch: pytest.MonkeyPatch, text: str, value: str) -> None:
    monkeypatch.setenv("DL_EMPTY", "")
    monkeypatch.setenv("DL_HOST", "h")
    monkeypatch.delenv("DL_NONE", raising=False)
    assert HadoopConf(Path("/conf"), {"x": "1", "key": text}).get("key") == value


def test_properties_in_a_cycle_are_refused() -> None:
    with pytest.raises(UsageError, match="a in /conf refers to itself"):
        HadoopConf(Path("/conf"), {"a": "${b}", "b": "z${a}"}).get("a")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (include("gone.xml"), "core-site.xml includes gone.xml, which does not exist, and has no fallback. Next: "),
        (include("bad.xml"), "bad.xml is not XML: "),
        (include("core-site.xml"), "core-site.xml includes itself. Next: "),
        (include("http://h/a.xml"), "core-site.xml includes http://h/a.xml: dlobd includes only files. Next: "),
        (include("sub"), "sub cannot be read: Is a directory. Next: "),
    ],
)
def test_an_include_that_cannot_be_read_is_one_line(tmp_path: Path, content: str, line: str) -> None:
    (tmp_path / "bad.xml").write_text("<configuration>")
    (tmp_path / "sub").mkdir()
    with pytest.raises(UsageError) as error:
        read_site(site(tmp_path / "core-site.xml", content))
    assert line in error.value.line

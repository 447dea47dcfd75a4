"""Rules for all tests: none may skip silently in CI, and cluster tests get a longer deadline."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.captured import Captured

CLUSTER_TIMEOUT_S = 600

# A busy machine makes every example slow, so only pytest's timeout limits the time of a test.
settings.register_profile("busy-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy-machine")


def pytest_configure() -> None:
    """A shell that starts the tests in the background has made SIGINT ignored, which every child would inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("cluster") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(CLUSTER_TIMEOUT_S))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """In CI a skipped test is a failure: what is not tested there is not tested anywhere."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which CI does not allow: {reason}"


@pytest.fixture(scope="session")
def captured() -> Captured:
    """The captured bundles, each computed at most once."""
    return Captured()


@pytest.fixture(scope="session", autouse=True)
def _no_configuration_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads the configuration file of the person who runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's settings must not change what a test sees."""
    for name in ("DLOBD_DATA", "DLOBD_HADOOP_CONF", "DLOBD_OUT", "DLOBD_PORT_BASE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

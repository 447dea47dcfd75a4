"""`pytest tests/golden --update-golden` writes the golden files anew; read the difference before it is committed."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing them")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written. The option is only known where tests/golden itself was named."""
    return bool(request.config.getoption("--update-golden", default=False))

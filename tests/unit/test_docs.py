import importlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer

from dlobd import errors
from dlobd.cli.main import app

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").rglob("*.md"))]
SOURCE = "\n".join(path.read_text() for path in sorted((TOP / "dlobd").rglob("*.py")))
COMMAND = typer.main.get_command(app)

_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return importlib.import_module("docs.generate")


def _code(page: Path) -> Iterator[str]:
    text = page.read_text()
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"^    (\S.*)$", text, re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", text)


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_are_current(generate: ModuleType) -> None:
    assert generate.main(["--check"]) == 0


def test_stale_unknown_and_missing_parts_of_pages_are_found(generate: ModuleType, tmp_path: Path) -> None:
    shutil.copytree(TOP / "docs", docs := tmp_path / "docs")
    page = docs / "layers.md"
    page.write_text(stale := page.read_text().replace("**YARN**", "**yarn**"))
    assert generate.main(["--check", "--to", str(docs)]) == 1
    assert page.read_text() == stale
    assert generate.main(["--to", str(docs)]) == 0
    assert page.read_bytes() == (TOP / "docs" / "layers.md").read_bytes()
    text = (page := docs / "commands.md").read_text()
    page.write_text(text.replace("begin dlobd show", "begin dlobd explain"))
    with pytest.raises(ValueError, match="nothing makes the part dlobd explain"):
        generate.filled(docs)
    page.write_text(text.replace("begin dlobd show", "dlobd show"))
    with pytest.raises(ValueError, match="no page has the part dlobd show"):
        generate.filled(docs)


def test_each_command_has_an_example(generate: ModuleType) -> None:
    page = (TOP / "docs" / "commands.md").read_text()
    sections = dict(re.findall(r"^### dlobd ([^\n]+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    for name, command in generate.leaves(COMMAND):
        block = re.findall(r"^```\n(.*?)^```", sections[name], re.MULTILINE | re.DOTALL)[0]
        own = [line.partition("#")[0].split() for line in block.splitlines() if line.startswith(f"dlobd {name}")]
        assert own, name
        for words in own:
            with command.make_context(name, words[1 + len(name.split()) :]):
                pass
        for parameter in command.params:
            assert parameter.help, (name, parameter.name)


@_page
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in _anchors(path), target


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.stem)
def test_named_files_exist(page: Path) -> None:
    rooms = "analysis|bench|data|dlobd|docker|docs|jobs|tests|yarn"
    for name in re.findall(rf"`((?:{rooms})/[\w./-]+\.\w+)`", page.read_text()):
        assert "NAME" in name or (TOP / name).exists(), name


@_page
def test_commands_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    for line in _code(page):
        words = line.partition("#")[0].split()
        if words[:1] == ["make"] and len(words) > 1:
            assert words[1] in targets, line
        if words[:1] in (["dlobd"], [".venv/bin/dlobd"]):
            _check_command(words[1:], line)


def _check_command(words: list[str], line: str) -> None:
    command = COMMAND
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    # what follows is handed on
    for word in words[: words.index("--")] if "--" in words else words:
        assert not word.startswith("-") or word == "-" or word in options, line


def test_reference_names_every_exit_code_and_variable() -> None:
    text = (TOP / "docs" / "reference.md").read_text()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DlobdError)]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == {0} | {k.exit_code for k in kinds}
    variables = set(re.findall(r"\bDLOBD_[A-Z_]+\b", SOURCE))
    assert set(re.findall(r"^\| `(DLOBD_\w+)`", text, re.MULTILINE)) == variables
    containers = set(re.findall(r"\bDLOBD_[A-Z_]+\b", (TOP / "docker" / "compose.yaml").read_text()))
    for page in PAGES:
        assert set(re.findall(r"\bDLOBD_[A-Z_]+\b", page.read_text())) <= variables | containers

"""Documentation and code check each other: what a page names is there, and what there is has its row."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from cp import settings
from cp.cli.main import build
from cp.model.source import read_documents
from cp.policies import Policy, discover, kinds
from cp.resources.kinds import Kind
from cp.resources.parse import parse
from cp.resources.schema import wire_names
from tests.support import journey

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]

FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^ {0,4}(\S+(?:, \S+)*)(?: {2,}.*)?$", re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
MAKE = re.compile(r"(?:^|[\s;&|])make(?: -[a-zA-Z]+)* ([a-z][a-z-]*)")
COMMAND = re.compile(r"(?:^|[\s/|;&])koguma((?: +[^\s|;&#]+)+)", re.MULTILINE)
OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")
PLACE = re.compile(r"(?:cp|generators|tests|docs|examples|protos|envoy-configs|bench|\.ci)/[A-Za-z0-9_./-]*")
MODULE = re.compile(r"(?:cp|generators|tests|examples)(?:\.[A-Za-z_]+)+")
EXAMPLE = re.compile(r"mesh_x|NAME|NNNN")


def pages() -> list[Any]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES]


def code(text: str) -> Iterator[str]:
    """What is set as code on a page: whole blocks, and what stands between backticks."""
    yield from FENCE.findall(text)
    yield from SPAN.findall(FENCE.sub("", text))


def spans(text: str) -> list[str]:
    return [span for span in SPAN.findall(FENCE.sub("", text)) if not EXAMPLE.search(span)]


def anchors(page: Path) -> set[str]:
    """The headings of a page as links have them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = LINK.findall(SPAN.sub("", FENCE.sub("", page.read_text())))
    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert not broken


NUMBERED = re.compile(r"\[[^\]]*?[Rr]ecord (\d{4})[^\]]*\]\([^)]*?(\d{4})-[^)]*\)")


@pytest.mark.parametrize("page", pages())
def test_every_link_to_a_record_calls_it_by_its_number(page: Path) -> None:
    assert not [(said, led_to) for said, led_to in NUMBERED.findall(page.read_text()) if said != led_to]


def test_every_record_has_the_number_of_its_file() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))[1:]

    assert not [record.name for record in records if not record.read_text().startswith(f"# {record.name[:4]}: ")]


@pytest.mark.parametrize("page", pages())
def test_every_make_target_exists(page: Path) -> None:
    there = set(TARGET.findall((ROOT / "Makefile").read_text()))
    named = {target for piece in code(page.read_text()) for target in MAKE.findall(piece)}

    assert not named - there


@pytest.mark.parametrize("page", pages())
def test_every_koguma_command_and_its_options_exist(page: Path) -> None:
    lines = [line for piece in code(page.read_text()) for line in piece.splitlines()]
    faults = {words: fault_of(words.split()) for line in lines for words in COMMAND.findall(line)}

    assert not {words: fault for words, fault in faults.items() if fault is not None}


@cache
def command_line() -> Any:
    return typer.main.get_command(build())


def fault_of(words: list[str]) -> str | None:
    """What is wrong with a command as a page has it: no such command, or no such option of it."""
    command: Any = command_line()
    for word in words:
        commands = getattr(command, "commands", None)
        if commands is None or word.startswith("-"):
            break
        if word not in commands:
            return f"no command {word}"
        command = commands[word]
    there = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = set(OPTION.findall(" ".join(words))) - there
    return f"no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("page", pages())
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = {span for span in spans(page.read_text()) if PLACE.fullmatch(span)}

    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", pages())
def test_every_module_that_is_named_exists(page: Path) -> None:
    named = {found[0] for span in spans(page.read_text()) if (found := MODULE.match(span)) is not None}

    assert not [name for name in sorted(named) if not resolves(name)]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    module, attributes = name, list[str]()
    while module:
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, attribute = module.rpartition(".")
            attributes.insert(0, attribute)
            continue
        for attribute in attributes:
            found = getattr(found, attribute, None)
        return found is not None
    return False


@cache
def sources_without_indents() -> str:
    sources = "\n".join(path.read_text() for folder in ("cp", "generators") for path in (ROOT / folder).rglob("*.py"))
    return re.sub(r"^ +", "", sources, flags=re.MULTILINE)


@pytest.mark.parametrize("page", pages())
def test_every_piece_of_python_stands_in_the_code(page: Path) -> None:
    pieces = [re.sub(r"^ +", "", piece, flags=re.MULTILINE) for piece in PYTHON.findall(page.read_text())]

    assert not [piece for piece in pieces if piece not in sources_without_indents()]


@pytest.mark.parametrize("page", journey.PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_of_each_stage_is_what_is(page: Path, is_updating: bool) -> None:
    text, stages = page.read_text(), journey.stages()
    if is_updating:
        page.write_text(journey.with_blocks(text, stages))
        return

    shown = journey.blocks(text)
    really = {name: stages.get(name, "there is no such stage") for name in shown}
    assert shown == really, "if that is right: pytest tests/test_docs.py --update-golden, and read the text around it"


def test_every_stage_is_shown() -> None:
    shown = {name for page in journey.PAGES for name in journey.blocks(page.read_text())}

    assert shown == set(journey.stages())


@pytest.mark.parametrize("page", pages())
def test_every_resource_on_a_page_is_valid(page: Path) -> None:
    known = kinds(discover())
    blocks = YAML.findall(page.read_text())
    documents = [document for block in blocks for document in read_documents(block, page.name).documents]
    findings = [finding for document in documents for finding in parse(document, known).findings()]

    assert not [str(finding) for finding in findings if finding.severity == "error"]


def fields(policy: Policy[Any]) -> tuple[str, ...]:
    schema: Any = policy.conf
    return wire_names(schema)


def rows(policy: Policy[Any]) -> set[str]:
    """The fields in the table at the top of a policy's module: what stands in its first column."""
    table = sys.modules[type(policy).__module__].__doc__ or ""
    return {field for cell in ROW.findall(table) for field in cell.split(", ")}


@pytest.mark.parametrize("policy", discover(), ids=lambda policy: policy.kind.name)
def test_every_field_has_its_row_at_the_top_of_its_module(policy: Policy[Any]) -> None:
    assert not [field for field in fields(policy) if field not in rows(policy)]


@pytest.mark.parametrize("policy", discover(), ids=lambda policy: policy.kind.name)
def test_every_row_is_a_field(policy: Policy[Any]) -> None:
    assert not rows(policy) - set(fields(policy))


LEGACY: Final = [kind for kind in kinds(discover()).values() if kind.legacy is not None]


def legacy_fields(kind: Kind) -> set[str]:
    """What may stand under `conf`."""
    schema: Any = kind.schema
    return {name.removeprefix("conf.") for name in wire_names(schema) if name.startswith("conf.")}


@pytest.mark.parametrize("kind", LEGACY, ids=lambda kind: kind.name)
def test_every_field_of_a_legacy_policy_has_its_row_at_the_top_of_its_module(kind: Kind) -> None:
    table = sys.modules[kind.schema.__module__].__doc__ or ""

    assert not legacy_fields(kind) - {field for cell in ROW.findall(table) for field in cell.split(", ")}


def test_the_guide_has_each_limit_of_the_history() -> None:
    guide = (ROOT / "docs/guides/look-back.md").read_text()
    named = set(re.findall(r"`(KOGUMA_HISTORY_\w+)`", guide))
    defaults = {variable: default for variable, default, _ in settings.rows() if variable.startswith("KOGUMA_HISTORY_")}

    assert named == defaults.keys()
    for variable, default in defaults.items():
        (row,) = re.findall(rf"^\| `{variable}` \|.*\| (.*) \|$", guide, re.MULTILINE)
        number, _, unit = row.replace("no limit", "0").partition(" ")
        assert int(number) * (2**20 if unit == "MiB" else 1) == float(default)

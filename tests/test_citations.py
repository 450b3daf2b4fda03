"""What code and documentation cite is there: records, headings of pages, files and modules.

Links between pages are followed by `tests/test_docs.py`; here is what stands in docstrings, comments and sentences.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.test_docs import PAGES, ROOT, anchors, resolves

RECORDS: Final = ROOT / "docs" / "adr"
INDEX: Final = RECORDS / "README.md"
FOLDERS: Final = ("cp", "generators", "tests", "bench", "examples", "docs")

BUILD_FILES: Final = ("Makefile", "pyproject.toml", "Dockerfile", "docker-compose.yml")

RECORD: Final = re.compile(r"(?:\b[Rr]ecords? |\band |\badr/|\bADR )(0\d{3})\b")
ANCHOR: Final = re.compile(r"(?<![\w./-])([\w./-]+\.md)(?:#([\w-]+))?")
FILE: Final = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w\.py\b")
MODULE: Final = re.compile(r"(?<![\w./-])(?:cp|generators)(?:\.[A-Za-z_]\w*)+")
OUTSIDE: Final = re.compile(
    r"\bdecisions?\s+\d+(?:\.\d+)*"
    r"|(?<!RFC \d{4}, )(?<!RFC \d{4} )\bsections?\s+\d+(?:\.\d+)*"
    r"|\(\d{1,2}\.\d{1,2}(?:(?:,| to| and) \d{1,2}\.\d{1,2})*\)"
    r"|\bkeys? \d to \d",
    re.IGNORECASE,
)
IMPORT: Final = re.compile(r"^(?:from|import) .*$", re.MULTILINE)
DOCUMENT: Final = re.compile(r"\bdocuments?\s+00\d", re.IGNORECASE)
LISTED: Final = re.compile(r"record 0024", re.IGNORECASE)
EXAMPLE: Final = re.compile(r"mesh_x|NAME|NNNN")

ROW: Final = re.compile(r"^\| \[(\d{4})\]\((\d{4}-[\w-]+\.md)\) \| (.+?) \| (.+?) \|$", re.MULTILINE)
NEVER_GIVEN: Final = re.compile(r"^- (\d{4}) ", re.MULTILINE)

OF_THE_PROJECT: Final = {
    "0000": "the template",
    "0001": "about records",
    "0022": "about dependencies, which pyproject.toml lists",
    "0023": "about environments, which the Makefile makes",
}
"""Records that no module obeys, with the reason."""

SAMPLES: Final[Mapping[str, str]] = {
    "obeys record 0999": "no record 0999",
    "as docs/adr/0999-nothing.md says": "no record 0999",
    "see docs/concepts/nothing.md": "no page docs/concepts/nothing.md",
    "see docs/concepts/routes.md#nothing": "no heading docs/concepts/routes.md#nothing",
    "see reference/nothing.md": "no page reference/nothing.md",
    "lives in cp/nothing.py": "no file cp/nothing.py",
    "lives in cp.model.nothing": "no module cp.model.nothing",
    "obeys decision 6": "leads out of the project: decision 6",
    "in its order (section 4.2)": "leads out of the project: section 4.2",
    "by tags (7.1, 7.3)": "leads out of the project: (7.1, 7.3)",
    "named (6.1 to 6.3)": "leads out of the project: (6.1 to 6.3)",
    "as document 003 says": "does not say where it is listed: document 003",
}
GOOD: Final = (
    "obeys record 0006 and docs/adr/0012-versions-are-content.md",
    "see docs/concepts/routes.md#backends and cp/model/names.py",
    "cp.model.names.Identity, as RFC 7386, section 2, has it",
    "document 002 (record 0024)",
)


def faults(text: str, listed_elsewhere: bool = False) -> Iterator[str]:
    """What a text cites that is not there."""
    for number in RECORD.findall(text):
        if number not in records():
            yield f"no record {number}"
    for path, anchor in ANCHOR.findall(text):
        yield from fault_of_page(path, anchor)
    yield from (f"no file {path}" for path in FILE.findall(text) if not is_there(path))
    yield from (f"no module {name}" for name in MODULE.findall(text) if not EXAMPLE.search(name) and not known(name))
    yield from (f"leads out of the project: {match[0]}" for match in OUTSIDE.finditer(text))
    if not (listed_elsewhere or LISTED.search(text)):
        yield from (f"does not say where it is listed: {match[0]}" for match in DOCUMENT.finditer(text))


def fault_of_page(path: str, anchor: str) -> Iterator[str]:
    if RECORD.search(path) or EXAMPLE.search(path):
        return
    if not is_there(path):
        yield f"no page {path}"
    elif anchor and anchor not in headings(ROOT / path):
        yield f"no heading {path}#{anchor}"


@cache
def records() -> Mapping[str, Path]:
    return {path.name[:4]: path for path in sorted(RECORDS.glob("[0-9]*.md"))}


@cache
def headings(page: Path) -> set[str]:
    return anchors(page)


@cache
def known(name: str) -> bool:
    return resolves(name)


def is_there(path: str) -> bool:
    return EXAMPLE.search(path) is not None or (ROOT / path).exists()


@cache
def prose(module: Path) -> str:
    """The docstrings and the comments of a module, or nothing if it cites nothing."""
    source = module.read_text()
    text = IMPORT.sub("", source)
    if not any(pattern.search(text) for pattern in (RECORD, ANCHOR, FILE, MODULE, OUTSIDE, DOCUMENT)):
        return ""
    strings = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    texts = [node.value for node in strings if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join([*texts, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def plain(page: Path) -> str:
    """The sentences of a page, without links: those are followed elsewhere."""
    return re.sub(r"\]\([^)\s]+\)", "]", page.read_text())


def modules() -> list[Path]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [*paths, *sorted((ROOT / "protos").glob("*.py")), ROOT / "hatch_build.py"]


def sources() -> Iterator[tuple[Path, Callable[[Path], str]]]:
    yield from ((module, prose) for module in modules())
    yield from ((page, plain) for page in PAGES)
    yield from ((path, Path.read_text) for path in sorted((ROOT / "protos" / "koguma").rglob("*.proto")))
    yield from ((ROOT / name, Path.read_text) for name in BUILD_FILES)


def is_listed_by_folder(path: Path) -> bool:
    """Whether the package of a module, or the index of a folder, says where the design documents are listed."""
    opening = path.parent / ("__init__.py" if path.suffix == ".py" else "README.md")
    return opening.exists() and LISTED.search(opening.read_text()) is not None


def test_what_is_cited_is_there() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path, read in sources()
        for fault in faults(read(path), is_listed_by_folder(path))
    ]

    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("text", SAMPLES)
def test_a_citation_that_leads_nowhere_is_found(text: str) -> None:
    assert list(faults(text)) == [SAMPLES[text]]


@pytest.mark.parametrize("text", GOOD)
def test_a_citation_that_leads_somewhere_is_no_fault(text: str) -> None:
    assert not list(faults(text))


def test_the_index_has_each_record_with_its_title() -> None:
    rows = {name: title for _, name, title, _ in ROW.findall(INDEX.read_text())}
    titles = {path.name: path.read_text().partition("\n")[0].split(": ", 1)[1] for path in list(records().values())[1:]}

    assert rows == titles


def test_the_index_is_in_the_order_of_numbers() -> None:
    numbers = [(number, name[:4]) for number, name, _, _ in ROW.findall(INDEX.read_text())]

    assert numbers == sorted(numbers)
    assert not [numbers for numbers in numbers if numbers[0] != numbers[1]]


def test_each_number_without_a_record_is_explained() -> None:
    used = set(records())
    missing = {f"{number:04}" for number in range(int(max(used)))} - used

    assert set(NEVER_GIVEN.findall(INDEX.read_text())) == missing


def test_each_record_is_cited_where_it_is_obeyed() -> None:
    cited = {number for module in modules() for number in RECORD.findall(prose(module))}

    assert not set(records()) - cited - set(OF_THE_PROJECT)

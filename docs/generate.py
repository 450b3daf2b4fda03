"""Writes the generated sections of the documentation: `make docs`. The text around them is written by hand.

A section stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from cp.access.powers import POWERS, Harm, Power
from cp.cli.answers import ANSWERS, NO_ANSWER, CommandAnswer
from cp.cli.commands import COMMANDS
from cp.cli.examples import example_lines
from cp.cli.findings import finding_lines
from cp.cli.main import build
from cp.insight.lint import CATALOGUE, lint
from cp.insight.report import lint_data
from cp.model.source import read_documents
from cp.monitoring.files import PAGES, files
from cp.policies import discover, kinds
from cp.resources.capabilities import MISSING, ONLY_WITH_MTLS, MissingCapability
from cp.resources.limits import LIMITS, MOST_ENTRIES, MOST_KEYS, PRODUCTS
from cp.resources.world import World
from cp.settings import table

REFERENCE: Final = Path(__file__).resolve().parent / "reference"
CONCEPTS: Final = REFERENCE.parent / "concepts"
MONITORING: Final = REFERENCE.parent / "monitoring"
CASES: Final = REFERENCE.parents[1] / "tests" / "cases" / "lint"

_SECTION: Final = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SETTING: Final = re.compile(r"(.*?)(?: \[([A-Z_]+)\])?", re.DOTALL)
"""What an option is, and the variable of the setting that it gives."""


def settings() -> Iterator[str]:
    """A table of every setting."""
    yield "| Variable | Key in a file | Default | What it is |"
    yield "|---|---|---|---|"
    for key, variable, default, text in table():
        yield f"| `{variable}` | `{key}` | {f'`{default}`' if default else ''} | {text} |"


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    yield from _command(typer.main.get_command(build()), ("koguma",))


def answers() -> Iterator[str]:
    """What each command prints for programs."""
    for words in COMMANDS:
        yield f"### `koguma {' '.join(words)}` in JSON"
        yield ""
        yield from _answer(ANSWERS[words]) if words in ANSWERS else (NO_ANSWER.get(words, "It is not described."),)
        yield ""


def _answer(answer: CommandAnswer) -> Iterator[str]:
    yield f"{answer.title[0].upper()}{answer.title[1:]}."
    if answer.page:
        yield f"What is in the fields is told with the [HTTP API]({answer.page})."
    yield ""
    yield "| Field | | What it is |"
    yield "|---|---|---|"
    for each in answer.fields:
        yield f"| `{each.name}` | {each.kind}{'' if each.always else ', not always'} | {each.meaning} |"


def findings() -> Iterator[str]:
    """Every sort of finding, with what is told where it is found: in the case of its name, if there is one."""
    for code, sort in CATALOGUE.items():
        yield f"### `{code}`"
        yield ""
        yield f"{sort.severity.capitalize()}: {sort.meaning}."
        yield ""
        yield from _example(code)


def products() -> Iterator[str]:
    """A table of every limit of a product."""
    yield "| The product | The most | Over the limit | The fix |"
    yield "|---|---|---|---|"
    for limit in PRODUCTS:
        yield f"| {limit.product} | {limit.most:,} {limit.unit} | {limit.outcome} | {limit.hint} |"


def lists() -> Iterator[str]:
    """A table of every list with a limit of its own."""
    yield "| Kind | List | The most entries |"
    yield "|---|---|---|"
    yield f"| every kind | every other list | {MOST_ENTRIES:,} |"
    yield f"| every kind | every map, such as tags or labels | {MOST_KEYS:,} |"
    for kind, paths in LIMITS.items():
        yield from (f"| {kind} | `{path}` | {most:,} |" for path, most in paths.items())


def not_enforced() -> Iterator[str]:
    """For each missing capability, what is understood and has no effect."""
    for capability in dict.fromkeys(row.capability for row in MISSING):
        yield f"### {capability}"
        yield ""
        yield from _rows(row for row in MISSING if row.capability == capability)
        yield ""


def only_with_mtls() -> Iterator[str]:
    """What has an effect in a mesh with mTLS alone."""
    yield from _rows(ONLY_WITH_MTLS)


def _rows(capabilities: Iterable[MissingCapability]) -> Iterator[str]:
    yield "| Kind | What has no effect | What that means | What to do |"
    yield "|---|---|---|---|"
    for row in capabilities:
        kinds_ = ", ".join(row.kinds)
        field = f"`{row.field}`" if row.field else "all of it"
        field += f" beside `{row.beside}`" if row.beside else ""
        yield f"| {kinds_} | {field} | {row.sentence} | {row.hint} |"


def powers() -> Iterator[str]:
    """Yield a table of the worst that each right to write lets its holder do, for each sort of harm."""
    for harm in Harm:
        yield f"**{harm.value[0].upper()}{harm.value[1:]}**"
        yield ""
        yield "| Kind | Field | Its writer | The right that it takes |"
        yield "|---|---|---|---|"
        alike: dict[tuple[str, str, str], list[str]] = {}
        for power in POWERS:
            if power.harm is harm:
                row = (_field(power), power.worst, power.grant.value)
                alike.setdefault(row, []).append(power.kind)
        for (field, worst, grant), named in alike.items():
            yield f"| {', '.join(named)} | {field} | {worst} | {grant} |"
        yield ""


def _field(power: Power) -> str:
    if power.part is None:
        has_others = any(other.kind == power.kind and other.part is not None for other in POWERS)
        return "all others" if has_others else "all"
    return f"`{power.part.field}` {power.part.but}".strip()


SECTIONS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "settings": settings,
    "commands": commands,
    "answers": answers,
    "findings": findings,
    "products": products,
    "lists": lists,
    "not_enforced": not_enforced,
    "only_with_mtls": only_with_mtls,
    "powers": powers,
}


def written(page: str) -> str:
    """A page with its generated sections as they should be."""

    def section(match: re.Match[str]) -> str:
        lines = "".join(f"{line}\n" for line in SECTIONS[match[2]]())
        return f"{match[1]}\n{lines}\n{match[3]}"

    return _SECTION.sub(section, page)


def pages() -> list[Path]:
    return [CONCEPTS / "threat-model.md", *sorted(REFERENCE.glob("*.md"))]


def _example(code: str) -> Iterator[str]:
    case = CASES / f"{code}.in.yaml"
    if case.exists():
        policies, reading = discover(), read_documents(case.read_text(), "mesh.yaml")
        data = lint_data(lint(policies, World.of(reading.documents, kinds(policies), findings=reading.findings)))
        yield "```text"
        yield from finding_lines(next(finding for finding in data["findings"] if finding["code"] == code))
        yield "```"
        yield ""
        yield f"Found in [`{case.name}`](../../tests/cases/lint/{case.name})."
        yield ""


def _command(command: Any, words: tuple[str, ...]) -> Iterator[str]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _command(inner, (*words, name))
    if hasattr(command, "commands"):
        return
    yield f"### `{' '.join(words)}`"
    yield ""
    yield command.help or ""
    yield ""
    yield "```sh"
    yield from example_lines(words[1:])
    yield "```"
    yield ""
    if command.params:
        yield "| | Environment | Default | |"
        yield "|---|---|---|---|"
        yield from map(_parameter, command.params)
        yield ""


def _parameter(parameter: Any) -> str:
    """One row. A default that is nothing is not shown, and neither is what every command has."""
    names = [*parameter.opts, *parameter.secondary_opts] if parameter.opts[0].startswith("-") else [parameter.metavar]
    text, setting = _SETTING.fullmatch(parameter.help or "").groups()  # type: ignore[union-attr]  # it fits any text
    variables = [setting] if setting else parameter.envvar or []
    shown, environment = (", ".join(f"`{word}`" for word in words) for words in (names, variables))
    return f"| {shown} | {environment} | {_default(parameter.default)} | {text} |"


def _default(value: Any) -> str:
    if value is None or value is False or value == () or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def generated() -> Iterator[tuple[Path, str]]:
    """Every file that is generated, wholly or in parts, with its text as it should be."""
    yield from ((page, written(page.read_text())) for page in pages())
    yield from ((MONITORING / name, text) for name, text in files(PAGES).items())


def main() -> None:
    for path, text in generated():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"wrote {path}")


if __name__ == "__main__":
    main()

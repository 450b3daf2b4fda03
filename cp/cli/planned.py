"""A plan in words: for a terminal, and in Markdown for a pull request."""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer

from cp.cli.findings import finding_lines
from cp.cli.output import brief
from cp.cli.preflight import preflight_lines
from cp.model.names import Key
from cp.model.wording import FEW, few, printable

Data = Mapping[str, Any]

LARGEST: Final = 60_000
"""Characters of Markdown: the comments of pull requests take 65,536."""

_SOME: Final = 8
_MANY: Final = 20
_NOTHING: Final = "(none)"
_SIGNS: Final = {"Created": "+", "Added": "+", "Updated": "~", "Changed": "~", "Deleted": "-", "Removed": "-"}
_COLOURS: Final = {"+": typer.colors.GREEN, "~": typer.colors.YELLOW, "-": typer.colors.RED}
_CUT: Final = "\n\n_The plan is longer than fits here: `koguma plan --all` shows all of it._\n"


@dataclass(frozen=True, slots=True)
class PlanStyle:
    """How a plan is shown."""

    with_all: bool = False
    """Whether long lists are shown to their end."""

    width: int | None = None
    """The width of the terminal; None: it is not for a terminal, and has no colours."""

    has_colours: bool = True
    """Whether signs are coloured on a terminal."""

    def shown(self, items: Sequence[Any], most: int) -> tuple[Sequence[Any], int]:
        """The first of some items, and how many there are beyond."""
        return (items, 0) if self.with_all or len(items) <= most else (items[:most], len(items) - most)

    def lines(self, text: str, indent: int = 0, sign: str = "") -> Iterator[str]:
        """A text as lines of the terminal."""
        margin, plain = " " * indent, printable(text)
        if self.width is None:
            yield f"{margin}{sign} {plain}" if sign else f"{margin}{plain}"
            return
        room = max(self.width - indent - 2 * bool(sign), 20)
        first, *further = textwrap.wrap(plain, room, subsequent_indent="  ", break_on_hyphens=False) or [""]
        coloured = typer.style(sign, fg=_COLOURS[sign]) if sign and self.has_colours else sign
        yield f"{margin}{coloured} {first}" if sign else f"{margin}{first}"
        yield from (f"{margin}{'  ' if sign else ''}{line}" for line in further)


def as_text(plan: Data, style: PlanStyle) -> str:
    """A plan for people, what matters most first."""
    return "".join(f"{line}\n" for line in _text(plan, style))


def _text(plan: Data, style: PlanStyle) -> Iterator[str]:
    yield from style.lines(summary(plan))
    if plan["empty"]:
        for sentence in under_way(plan):
            yield from style.lines(sentence)
        return
    yield ""
    documents, more = style.shown(plan["documents"], _MANY)
    for document in documents:
        yield from style.lines(f"{_key(document)}{_place(document)}", 2, _SIGNS[document["change"]])
    yield from _more(more, "documents", 2)
    for mesh in plan["meshes"]:
        yield from _mesh(mesh, style)
    yield from _findings(plan["findings"], style)
    if "preflight" in plan:
        yield ""
        yield from (line for text, sign in preflight_lines(plan["preflight"]) for line in style.lines(text, 0, sign))
    yield ""
    for note in notes(plan):
        yield from style.lines(note)


def summary(plan: Data) -> str:
    """What a plan comes to, in one line."""
    if plan["empty"]:
        return "Nothing would change."
    words = {"Created": "created", "Updated": "updated", "Deleted": "deleted"}
    counts = Counter(document["change"] for document in plan["documents"])
    of_documents = ", ".join(f"{counts[change]} {word}" for change, word in words.items() if counts[change])
    return f"{_count(len(plan['documents']), 'resource')} would change ({of_documents}); {_reach(plan['meshes'])}."


def _reach(meshes: Iterable[Data]) -> str:
    meshes = list(meshes)
    reached, proxies = (sum(counts) for counts in (map(_reached, meshes), (mesh["proxies"] for mesh in meshes)))
    moved = [f"{_count(sum(len(mesh[side]) for mesh in meshes), 'proxy')} {word}" for side, word in _sides(meshes)]
    notice = f"{reached} of {_count(proxies, 'proxy')} would be sent something"
    return ", ".join((notice if reached else "no proxy would notice", *moved))


def _sides(meshes: Iterable[Data]) -> Iterator[tuple[str, str]]:
    meshes = list(meshes)
    for side, word in (("added", "would be new"), ("removed", "would be gone")):
        if any(mesh[side] for mesh in meshes):
            yield side, word


def _reached(mesh: Data) -> int:
    return len(mesh["reached"])


def _mesh(mesh: Data, style: PlanStyle) -> Iterator[str]:
    yield ""
    ways = f", in {_count(len(mesh['groups']), 'way')}" if len(mesh["groups"]) > 1 else ""
    reached = f"{_reached(mesh)} of {_count(mesh['proxies'], 'proxy')} would be sent something{ways}"
    yield from style.lines(f"mesh {mesh['mesh']}: {reached if mesh['differences'] else 'no proxy would notice'}")
    for side, sign, word in (("added", "+", "new"), ("removed", "-", "gone")):
        if mesh[side]:
            yield from style.lines(f"{word}: {_shown(mesh[side], style)}", 2, sign)
    for causes, differences in by_cause(mesh["differences"]):
        yield from style.lines(f"because of {causes}:", 2)
        shown, more = style.shown(differences, _MANY)
        for difference in shown:
            yield from _difference(difference, style)
        yield from _more(more, "resources of proxies", 4)


def by_cause(differences: Iterable[Data]) -> Iterator[tuple[str, list[Data]]]:
    """Differences that follow from the same documents together, in the order in which they come."""
    together: dict[str, list[Data]] = {}
    for difference in differences:
        causes = [f"{cause['type']} {cause['name']}" for cause in difference["causes"]]
        together.setdefault(few(causes) or "the change", []).append(difference)
    yield from together.items()


def _difference(difference: Data, style: PlanStyle) -> Iterator[str]:
    title = f"{difference['type']} {difference['name']}, for {_shown(difference['proxies'], style)}"
    yield from style.lines(title, 4, _SIGNS[difference["change"]])
    fields = difference["fields"] if style.with_all or difference["change"] == "Changed" else []
    shown, more = style.shown(fields, _SOME)
    known: set[int] = set()
    for field in shown:
        yield from style.lines(
            f"{field['path'] or 'as a whole'}: {_side(field, 'before')} → {_side(field, 'after')}", 8
        )
        for text in _origins(difference, field, known, style):
            yield from style.lines(f"from {text}", 10)
    yield from _more(more, "fields", 8)
    if "moreFields" in difference:
        yield from style.lines(f"… and {difference['moreFields']} more fields, of which a plan does not tell", 8)
    if "drains" in difference:
        yield from style.lines(f"ends {difference['drains']}", 8)


def _origins(difference: Data, field: Data, known: set[int], style: PlanStyle) -> Iterator[str]:
    """The values from which a field follows. Where they are many, they are shown to their end at the first field."""
    for place in field.get("values", ()):
        values = difference["values"][place]
        is_whole = style.with_all and place not in known
        known.add(place)
        shown = values if is_whole else values[:_SOME]
        yield from map(_value, shown)
        if len(values) > len(shown):
            hint = "as above" if style.with_all else "--all shows them"
            yield f"… and {len(values) - len(shown)} more values: {hint}"


def _value(value: Data) -> str:
    """A value of a conf before and after, each with who set it."""
    before, after = (_origin(value[side]) if side in value else "not set" for side in ("before", "after"))
    return f"{value['type']} {value['field']}: {before} → {after}"


def _origin(side: Data) -> str:
    if side.get("builtIn"):
        return f"{brief(side['value'])} (built in)"
    place = f", {side['file']}:{side['line']}" if side.get("file") else ""
    return f"{brief(side['value'])} ({side['policy']}{place})"


def _findings(findings: Data, style: PlanStyle) -> Iterator[str]:
    for side, title, sign in (("appearing", "findings that appear", "+"), ("vanishing", "findings that vanish", "-")):
        if findings[side]:
            yield ""
            yield from style.lines(f"{title}:")
        shown, more = style.shown(findings[side], _SOME)
        for finding in shown:
            first, *further = finding_lines(finding)
            yield from style.lines(first, 2, sign)
            for line in further:
                yield from style.lines(line.strip(), 6)
        yield from _more(more, "findings", 2)


def under_way(plan: Data) -> Iterator[str]:
    """Why some may not be served what is stored, although nothing would change."""
    for sentence in plan.get("rollouts", ()):
        yield f"Some proxies may be served something else than what is stored: {sentence}."


def notes(plan: Data) -> Iterator[str]:
    """What a plan does not say."""
    if closed := plan.get("meshesNotTold"):
        yield f"Not compared, as you may not look into it: {', '.join(closed)}."
    if unreadable := ", ".join(str(_key(document)) for document in plan.get("unreadable", ())):
        yield f"Not compared, as nobody can decrypt how they were: {unreadable}."
    yield f"Not compared: {'; '.join(plan['notCompared'])}."


def _more(count: int, noun: str, indent: int) -> Iterator[str]:
    if count:
        yield f"{' ' * indent}… and {count} more {noun}: --all shows them"


def _shown(names: Sequence[str], style: PlanStyle) -> str:
    return few(names, len(names) if style.with_all else FEW)


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun != "way" else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _side(field: Data, side: str) -> str:
    return brief(field.get(side, _NOTHING))


def _key(document: Data) -> Key:
    return Key(document["type"], document.get("mesh", ""), document["name"])


def _place(document: Data) -> str:
    return f"  {document['file']}:{document['line']}" if document.get("file") else ""


def as_markdown(plan: Data, style: PlanStyle) -> str:
    """A plan for a pull request: what matters stands open, all else can be opened. It is cut where it is too long."""
    text, pieces = "", list(_markdown(plan, style))
    for place, piece in enumerate(pieces):
        if len(text) + len(piece) + len(_CUT) > LARGEST and place:
            return text + _CUT.lstrip("\n")
        text += piece[: LARGEST - len(_CUT)]
    return text


def _markdown(plan: Data, style: PlanStyle) -> Iterator[str]:
    """Pieces, each of which is whole by itself."""
    yield f"### {_cell(summary(plan))}\n\n"
    if plan["empty"]:
        yield from (f"_{_cell(sentence)}_\n" for sentence in under_way(plan))
        return
    documents, more = style.shown(plan["documents"], _MANY)
    rows = (
        f"| {_SIGNS[document['change']]} | {_code(_key(document))} | {_code(_place(document).strip())} |"
        for document in documents
    )
    note = f"\n… and {more} more resources.\n" if more else ""
    yield "\n".join(("| | Resource | Where |", "|---|---|---|", *rows)) + f"\n{note}\n"
    for mesh in plan["meshes"]:
        yield from _mesh_in_markdown(mesh, style)
    yield from _findings_in_markdown(plan["findings"], style)
    if "preflight" in plan:
        yield "\n".join(f"- {_cell(text)}" for text, _ in preflight_lines(plan["preflight"])) + "\n\n"
    yield "\n".join(f"_{_cell(note)}_" for note in notes(plan)) + "\n"


def _mesh_in_markdown(mesh: Data, style: PlanStyle) -> Iterator[str]:
    for causes, differences in by_cause(mesh["differences"]):
        proxies = {proxy for difference in differences for proxy in difference["proxies"]}
        ends = ", **ends connections**" if any("drains" in difference for difference in differences) else ""
        title = f"mesh {mesh['mesh']}: {_count(len(proxies), 'proxy')}, because of {causes}"
        shown, more = style.shown(differences, _MANY)
        rows = [row for difference in shown for row in _rows(difference, style)]
        note = f"\n… and {more} more resources of proxies.\n" if more else ""
        heads = "| Resource | Field | Before | After | From |\n|---|---|---|---|---|"
        opened = f"<details><summary>{_cell(title)}{ends}</summary>\n\n{heads}\n"
        yield opened + "\n".join(rows) + f"\n{note}\n</details>\n\n"


def _rows(difference: Data, style: PlanStyle) -> Iterator[str]:
    name = f"{_SIGNS[difference['change']]} {difference['type']} {_code(difference['name'])}"
    title = f"{name} ({_cell(_shown(difference['proxies'], style))})"
    if difference["change"] != "Changed":
        yield f"| {title} | | | | |"
    else:
        shown, more = style.shown(difference["fields"], _SOME)
        known: set[int] = set()
        for field in shown:
            sides = " | ".join(_code(_side(field, side)) for side in ("before", "after"))
            origins = "<br>".join(map(_cell, _origins(difference, field, known, style)))
            yield f"| {title} | {_code(field['path'] or 'as a whole')} | {sides} | {origins} |"
            title = ""
        if more:
            yield f"| | … and {more} more fields | | | |"
        if "moreFields" in difference:
            yield f"| | … and {difference['moreFields']} more fields, of which a plan does not tell | | | |"
    if "drains" in difference:
        yield f"| | ends {_cell(difference['drains'])} | | | |"


def _findings_in_markdown(findings: Data, style: PlanStyle) -> Iterator[str]:
    for side, title in (("appearing", "Findings that appear"), ("vanishing", "Findings that vanish")):
        shown, more = style.shown(findings[side], _MANY)
        if shown:
            items = (f"- {_cell(' '.join(map(str.strip, finding_lines(finding))))}" for finding in shown)
            note = f"- … and {more} more\n" if more else ""
            yield f"**{title}**\n\n" + "\n".join(items) + f"\n{note}\n"


def _code(value: object) -> str:
    text = _cell(str(value))
    return f"<code>{text}</code>" if text else ""


def _cell(text: str) -> str:
    """A text that means nothing to Markdown: no table, no tag and nobody to be told."""
    escaped = html.escape(" ".join(printable(text).split()))
    for sign in "|`*_[]@~\\":
        escaped = escaped.replace(sign, f"&#{ord(sign)};")
    return escaped

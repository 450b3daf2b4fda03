"""SPIFFE IDs, by which certificates name workloads, and the templates that they are made from.

What an ID may be is in https://spiffe.io/docs/latest/spiffe-specs/spiffe-id/#2-spiffe-identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cp.model.violation import Violation
from cp.resources.schema import near, shortened

SCHEME: Final = "spiffe://"
_LONGEST_ID: Final = 2048
_LONGEST_DOMAIN: Final = 255
_LONGEST_TEMPLATE: Final = 2048
_DOMAIN: Final = re.compile(r"[a-z0-9._-]+")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
_FIELD: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]*")
_LABEL: Final = re.compile(r'label\s+(?:"([^"\\]*)"|`([^`]*)`)')


def is_spiffe_id(text: str) -> bool:
    domain, slash, path = text.removeprefix(SCHEME).partition("/")
    is_sound = not fault_of_domain(domain) and not (slash and fault_of_path(slash + path))
    return text.startswith(SCHEME) and len(text) <= _LONGEST_ID and is_sound


def fault_of_domain(text: str) -> str:
    """Why a text cannot be a trust domain; empty if it can."""
    if not text:
        return "is empty"
    if len(text) > _LONGEST_DOMAIN:
        return f"is {len(text)} characters long, and {_LONGEST_DOMAIN} are the most"
    return "" if _DOMAIN.fullmatch(text) else "has others than lower case letters, digits, `.`, `-` and `_`"


def fault_of_path(text: str) -> str:
    """Why a text cannot be the path of an ID; empty if it can. The path of a workload is never empty."""
    if not text.startswith("/"):
        return "does not begin with a slash"
    if len(text) > _LONGEST_ID:
        return f"is {len(text)} characters long, and {_LONGEST_ID} are the most for the whole ID"
    segments = text[1:].split("/")
    if "" in segments:
        return "has an empty segment"
    if {".", ".."} & {*segments}:
        return "has `.` or `..` for a segment"
    is_plain = all(map(_SEGMENT.fullmatch, segments))
    return "" if is_plain else "has others than letters, digits, `.`, `-` and `_` between its slashes"


@dataclass(frozen=True, slots=True)
class TemplateField:
    """What the control plane knows: `{{ .Mesh }}`."""

    name: str


@dataclass(frozen=True, slots=True)
class TemplateLabel:
    """What a label says: `{{ label "team" }}`."""

    name: str


Template: TypeAlias = tuple[str | TemplateField | TemplateLabel, ...]
"""A template that was read: texts, with what stands between them."""


class TemplateFault(Exception):
    """A template that means nothing, with all of its faults."""

    def __init__(self, *faults: Violation) -> None:
        super().__init__(*map(str, faults))
        self.faults = faults


class MissingLabel(Exception):
    """A label that a template asks for and that is not there."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.label = label


def read_template(text: str, fields: Mapping[str, str]) -> Template:
    """A template that may have some fields, and labels. Go's functions, conditions and pipelines are faults.

    The fields have the names of the labels that they stand for, or nothing where they stand for no label.
    """
    if len(text) > _LONGEST_TEMPLATE:
        raise TemplateFault(Violation("", f"is {len(text)} characters long, and {_LONGEST_TEMPLATE} are the most"))
    parts = [*_parts(text, fields)]
    if faults := [part for part in parts if isinstance(part, Violation)]:
        raise TemplateFault(*faults)
    return tuple(part for part in parts if not isinstance(part, Violation))


def _parts(text: str, fields: Mapping[str, str]) -> Iterator[str | TemplateField | TemplateLabel | Violation]:
    first, *actions = text.split("{{")
    yield from (first,) if first else ()
    for action_and_text in actions:
        action, closing, following = action_and_text.partition("}}")
        unclosed = Violation("", f"`{{{{{shortened(action)}` is never closed", "close it with `}}`")
        yield _action(action.strip(), fields) if closing else unclosed
        yield from (following,) if following else ()


def _action(action: str, fields: Mapping[str, str]) -> TemplateField | TemplateLabel | Violation:
    if action in fields:
        return TemplateLabel(fields[action]) if fields[action] else TemplateField(action)
    label = _LABEL.fullmatch(action)
    if label is None:
        known = f'it may have {", ".join(sorted(fields))} and `label "…"`'
        hint = near(action, fields) if _FIELD.fullmatch(action) else ""
        return Violation("", f"`{shortened(action)}` means nothing here", hint or known)
    return TemplateLabel(label[1] if label[1] is not None else label[2])


def render(template: Template, fields: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """The text that a template comes to. Raises `MissingLabel`."""
    return "".join(_rendered(part, fields, labels) for part in template)


def _rendered(part: str | TemplateField | TemplateLabel, fields: Mapping[str, str], labels: Mapping[str, str]) -> str:
    if isinstance(part, TemplateField):
        return fields[part.name]
    if isinstance(part, TemplateLabel):
        if part.name not in labels:
            raise MissingLabel(part.name)
        return labels[part.name]
    return part

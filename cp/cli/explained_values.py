"""What explanations say of values: who set each, who may call whom, and which limit is reached first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from cp.cli.text_sections import BAD, GAP, PLAIN, STRONG, WEAK, TextLine

Data = Mapping[str, Any]

_MOST_NAMES: Final = 12


def value_lines(values: Sequence[Data]) -> Iterator[TextLine]:
    heads = ("FIELD", "VALUE", "LEVEL", "SET BY", "WHERE")
    ordered = sorted(values, key=lambda value: (_kind(value), value["said"]["level"] == "envoy"))
    for index, (policy, fields) in enumerate(groupby(ordered, key=_kind)):
        if index:
            yield TextLine(("",))
        yield TextLine((policy, *heads[1:]), STRONG)
        for value in fields:
            yield from _value(value)


def _kind(value: Data) -> str:
    return str(value["policy"])


def _value(value: Data) -> Iterator[TextLine]:
    setting, note = value["said"], value["note"]
    shown = note if setting["value"] is None and note else _short(setting["value"])
    remark = f" ({note})" if note and shown != note else ""
    style = WEAK if setting["policy"] is None else PLAIN
    yield TextLine(
        (f"{GAP}{value['path']}", shown, setting["level"], _setter(setting), f"{location(setting)}{remark}".strip()),
        style,
    )
    for overridden in value["over"]:
        where = ", removed by ".join(part for part in (location(overridden), _removed_by(overridden)) if part)
        yield TextLine(
            (f"{GAP}{GAP}instead of", _short(overridden["value"]), overridden["level"], _setter(overridden), where),
            WEAK,
        )


def access_lines(access: Data) -> Iterator[TextLine]:
    """Whether servers let a call in, and why."""
    answer, permission = ("let in", PLAIN) if access["allowed"] else ("refused", BAD), access["decidedBy"]
    yield TextLine((answer[0], _permission(permission) if permission else access["reason"]), answer[1])
    if access["shadowDeniedBy"]:
        yield TextLine(("logged", f"that it might be denied, as {_named(access['shadowDeniedBy'])} asks"))
    yield TextLine(("spoken", f"{access['spoken']}: {access['spokenReason']}"))
    mode = access["takenOrigin"]
    yield TextLine(("taken", access["taken"] + (f", as {_named(mode)} says" if mode else "")))
    for label, names in (("caller is", "callerNames"), ("expects", "expectedNames"), ("server is", "serverNames")):
        if access[names]:
            yield TextLine((label, _names(access[names])))


def _permission(origin: Data) -> str:
    verb = "denied" if origin["value"] == "deny" else "allowed"
    return f"{verb} by {_named(origin)}"


def _named(origin: Data) -> str:
    place = f" ({location(origin)})" if location(origin) else ""
    return f"{origin['policy']['type']} {_setter(origin)}{place}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _removed_by(setting: Data) -> str:
    null = setting.get("removedBy")
    return "" if null is None else f"{_setter(null)} {location(null)}".rstrip()


def _setter(setting: Data) -> str:
    if setting["policy"] is None:
        return "a default" if setting["level"] == "built-in" else "nobody"
    return f"{setting['policy']['name']} {setting['item']}"


def location(setting: Data | None) -> str:
    return "" if setting is None or not setting["file"] else f"{setting['file']}:{setting['line']}"


def _short(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(element, str) for element in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def limit_lines(limits: Sequence[Data], client: str) -> Iterator[TextLine]:
    """The limits of both sides for each subject, and which is reached first."""
    subjects = [
        subject
        for subject, subject_limits in groupby(limits, key=_subject)
        if any(limit["seconds"] > 0 for limit in subject_limits)
    ]
    if subjects:
        yield TextLine(("", client, "SERVER"), STRONG)
    for subject in subjects:
        subject_limits = [limit for limit in limits if limit["of"] == subject]
        yield TextLine((subject, _side(subject_limits, "client"), _side(subject_limits, "server")))


def _subject(limit: Data) -> str:
    return str(limit["of"])


def _side(limits: Iterable[Data], side: str) -> str:
    own_limits = [limit for limit in limits if limit["side"] == side and limit["seconds"] > 0]
    if not own_limits:
        return "no limit"
    least = min(own_limits, key=lambda limit: float(limit["seconds"]))
    return f"{least['said']['value']}{' ◄ binding' if least['binding'] else ''}"

"""Explanations as text: first the route of the call, then every value in force and who set it.

The text is made from the JSON data of the API, so that it is the same for files and for a control plane.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from types import MappingProxyType
from typing import Any, Final

from cp.cli.tables import narrowed, row_lines

Data = Mapping[str, Any]

PLAIN: Final = ""
STRONG: Final = "bold"
CHOSEN: Final = "bold green"
WEAK: Final = "dim"
BAD: Final = "bold red"

_GAP: Final = "  "
_LAST_CELL: Final = 3
"""The last cell of a row gets at least one part in so many of the width."""

_NARROWEST: Final = 20
_FEW: Final = 3
_MOST_ROWS: Final = 12
_MOST_NAMES: Final = 12
_CONNECTIONS: Final = frozenset({"tcp", "tls"})
_STANDING: Final = MappingProxyType(
    {
        "Refused": "The proxy refuses a part of what it was sent",
        "Out of sync": "Something is on its way to the proxy",
        "Failed": "By a fault of the control plane, a part could not be made for the proxy",
    }
)
"""The states of a connected proxy that may do something else than what is explained."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line, with the style that it has on a terminal."""

    cells: tuple[str, ...]
    style: str = PLAIN


@dataclass(frozen=True, slots=True)
class TextWidth:
    """How wide lines are, and whether names that are too long for a column are cut."""

    columns: int
    cuts: bool = False


def lines(data: Data, width: TextWidth) -> Iterator[tuple[str, str]]:
    """Every line of an explanation, with its style. Tables are at most so wide."""
    yield f"{data['proxy']['name']}: {_call_text(data)}", STRONG
    yield "", PLAIN
    yield from _columns(_summary(data), width)
    yield from _section(
        "VALUES for clients of the gateway", _values((data["listener"] or {}).get("clients", [])), width
    )
    if len(data["rows"]) > 1:
        yield from _section("ROUTES, in the order in which they are tried", _rows(data["rows"]), width)
    yield from _section(
        "VALUES", _values([*data["values"], *_not_shown(data["values"], _shared_values(data["backends"]))]), width
    )
    for backend in _differing(data["backends"]):
        yield from _section(
            f"VALUES for {_service(backend)}", _values(_not_shown(data["values"], backend["values"])), width
        )
    for server in data["servers"][:_MOST_ROWS]:
        yield from _section(f"VALUES at {_servers(server['servers'])}", _values(_written(server["values"])), width)
    for access in data["access"][:_MOST_ROWS]:
        yield from _section(f"ACCESS to {_servers(access['servers'])}", _access(access), width)
    if len(data["access"]) > _MOST_ROWS:
        yield from _section(
            f"ACCESS to others: {len(data['access']) - _MOST_ROWS} more answers", [TextLine(("…",))], width
        )
    for hop in data["hops"]:
        client = "CLIENT" if data["listener"] is None else "GATEWAY"
        yield from _section(f"LIMITS on the way to {_servers(hop['servers'])}", _limits(hop["limits"], client), width)
    yield from _section("NOT IN SYNC", _not_in_sync(data), width)
    yield from _section("GOING ON", (TextLine((text,)) for text in filter(None, [data.get("rollout")])), width)
    yield from _section("GOING ON with mTLS", (TextLine((text,)) for text in data.get("moves", ())), width)
    yield from _section("NOT KNOWN", (TextLine((text,), BAD) for text in data.get("notKnown", ())), width)
    yield from _section("NOT ENFORCED", (TextLine((text,), BAD) for text in data["notEnforced"]), width)


def _not_in_sync(data: Data) -> Iterator[TextLine]:
    """Whether the proxy does what is explained. Files say nothing of that."""
    for refused in data.get("refused", ()):
        yield TextLine((f"The proxy refuses {refused}",), BAD)
    if standing := _STANDING.get(data.get("status", "")):
        yield TextLine((f"{standing}: above is what it should do, and not what it does now.",), BAD)


def _call_text(data: Data) -> str:
    call = data["call"]
    if data["listener"] is not None:
        url = f"{call['scheme']}://{_authority(call)}"
        is_connection = call["scheme"] in _CONNECTIONS or data["listener"]["protocol"] in {"TCP", "TLS"}
        return url if is_connection else f"{call['method']} {url}{call['path']}"
    if data["outbound"]["protocol"] == "tcp":
        return f"tcp://{_authority(call)}"
    return (
        f"{call['method']} http://{_authority(call)}{call['path']}"
        if call["host"]
        else f"{call['method']} {call['path']}"
    )


def _section(title: str, rows: Iterable[TextLine], width: TextWidth) -> Iterator[tuple[str, str]]:
    section_rows = list(rows)
    if section_rows:
        yield "", PLAIN
        yield title, STRONG
        yield from _columns(section_rows, width)


def _columns(rows: Iterable[TextLine], width: TextWidth) -> Iterator[tuple[str, str]]:
    """Rows as lines of at most so many characters. The last cell gets the rest of the width."""
    everything = list(rows)
    room = width.columns - len(_GAP)
    wide = list(zip_longest(*(row.cells[:-1] for row in everything), fillvalue=""))
    gaps = len(_GAP) * len(wide)
    before_last = min(room - room // _LAST_CELL, room - gaps - _NARROWEST)
    widths = narrowed([max(map(len, column)) for column in wide], before_last)
    for row in everything:
        widths_before = widths[: len(row.cells) - 1]
        last = max(room - sum(widths_before) - len(_GAP) * len(widths_before), _NARROWEST)
        for line in row_lines(row.cells, [*widths_before, last], _GAP, cuts=width.cuts):
            yield f"{_GAP}{line}".rstrip(), row.style


def _summary(data: Data) -> Iterator[TextLine]:
    outbound, outcome = data["outbound"], data["outcome"]
    if outbound is not None:
        where = f"{outbound['address']}:{outbound['port']}, for {outbound['kind']} {outbound['destination']}"
        yield TextLine(("leaves by", f"{where} ({outbound['protocol']})"))
        yield from (_route(row) for row in data["rows"] if row["taken"])
    else:
        yield from _entrance(data["listener"])
        yield from (_route_of_gateway(row) for row in data["rows"] if row["taken"])
    if outcome["path"] and outcome["path"] != data["call"]["path"]:
        yield TextLine(("seen as", f"{outcome['path']}: so Envoy reads the path"))
    yield from (TextLine(("on the way", change)) for change in data["changes"])
    yield from _end(data)


def _entrance(listener: Data) -> Iterator[TextLine]:
    """The listener of a gateway by which the call comes in."""
    where = (
        f"{listener['address']}:{listener['port']}, {listener['protocol']} of MeshGateway {listener['gateway']['name']}"
    )
    yield TextLine(("comes in by", where))
    if listener["origin"] is None:
        yield TextLine(("listener", f"none: {listener['reason']}"), BAD)
        return
    place = f"{listener['origin']['item']} for {listener['hostname']}{_after_comma(listener['origin'])}"
    host = listener["host"]
    because = "" if host else f": {listener['reason']}"
    yield TextLine(("listener", f"{place}{because}"))
    if host:
        yield TextLine(("hostname", f"{host}: {listener['reason']}"))
    if listener["protocol"] in {"HTTPS", "TLS"}:
        yield TextLine(("TLS", listener["tls"]))


def _route_of_gateway(row: Data) -> TextLine:
    if row["owner"] is None and not row["patched"]:
        return TextLine(("by route", "none: no route for this hostname takes the request"), BAD)
    return _route(row)


def _route(row: Data) -> TextLine:
    if row["patched"]:
        return TextLine(("by route", f"one that a MeshProxyPatch wrote: {_conditions(row)}"), CHOSEN)
    if row["owner"] is None:
        return TextLine(("by route", "the one that every service has: no route resource takes this request"), CHOSEN)
    conditions = f": {_conditions(row)}" if row["asks"] else ""
    text = f"{row['owner']['type']} {row['owner']['name']}{_other_routes(row)}{conditions}{_after_comma(row['place'])}"
    return TextLine(("by route", text), CHOSEN)


def _other_routes(row: Data) -> str:
    """The other routes whose policies are in force too."""
    names = " and ".join(route["name"] for route in row["beside"])
    return f" with what is left of {names}" if names else ""


def _end(data: Data) -> Iterator[TextLine]:
    reply, forward = data["outcome"]["reply"], data["outcome"]["forward"]
    if reply is not None and _is_unmatched(data):
        yield TextLine(("answers", str(reply["status"])), BAD)
        return
    if reply is not None:
        to = f" to {reply['location']}" if reply["location"] else ""
        text = reply["body"] or reply["reason"]
        if reply["status"] == 0:
            yield TextLine(("answers", f"nothing, the connection is closed: {text}"), BAD)
            return
        yield TextLine(("answers", f"{reply['status']}{to}{'' if to else f': {text}'}"), PLAIN if to else BAD)
        return
    if forward["path"] != data["outcome"]["path"]:
        yield TextLine(("asks for", forward["path"]))
    if forward["host"] != (data["outcome"]["host"] or None) and data["outcome"]["path"]:
        yield TextLine(("asks host", forward["host"] or "the name of the endpoint"))
    for backend in data["backends"]:
        yield _backend(backend, alone=len(data["backends"]) == 1, is_http=bool(data["outcome"]["path"]))


def _is_unmatched(data: Data) -> bool:
    """Whether the last row of a gateway took the call, which is for what no route takes."""
    taken = next((row for row in data["rows"] if row["taken"]), None)
    return data["listener"] is not None and taken is not None and taken["owner"] is None and not taken["patched"]


def _authority(call: Data) -> str:
    return str(call["host"]) if call["port"] is None else f"{call['host']}:{call['port']}"


def _backend(backend: Data, *, alone: bool, is_http: bool) -> TextLine:
    share = "" if alone else f"{backend['share']:g} %  "
    if backend["missing"]:
        end = "is answered with an error" if is_http else "the connection is closed"
        return TextLine(("goes to", f"{share}nobody, and {end}: {backend['missing']}"), BAD)
    count = len(backend["endpoints"])
    few = f": {', '.join(backend['endpoints'])}" if 0 < count <= _FEW else ""
    text = f"{share}{_service(backend)}, {count} endpoint{'' if count == 1 else 's'}{few}"
    return TextLine(("goes to", text), PLAIN if count else BAD)


def _service(backend: Data) -> str:
    return str(backend["service"] or backend["cluster"])


def _rows(rows: Sequence[Data]) -> Iterator[TextLine]:
    """The routes that Envoy tried, and of the others those that would have matched too."""
    taken = next((row["index"] for row in rows if row["taken"]), len(rows))
    listed_rows = [row for row in rows if row["index"] <= taken or row["matches"]]
    shown = (
        listed_rows
        if len(listed_rows) <= _MOST_ROWS
        else [*listed_rows[:_FEW], *listed_rows[max(_FEW, taken - _FEW) : taken + _FEW]]
    )
    last_index = -1
    for row in shown:
        if row["index"] > last_index + 1:
            yield TextLine(("", "", f"… {row['index'] - last_index - 1} more", "", ""), WEAK)
        last_index = row["index"]
        yield _row(row)
    if last_index < len(rows) - 1:
        yield TextLine(("", "", f"… {len(rows) - 1 - last_index} more", "", ""), WEAK)


def _row(row: Data) -> TextLine:
    of_nobody = "a patch's" if row["patched"] else "everything else"
    owner = of_nobody if row["owner"] is None else row["owner"]["name"]
    mark, style = ("►", CHOSEN) if row["taken"] else ("", WEAK)
    return TextLine((mark, owner, _conditions(row), _location(row["place"]), row["why"]), style)


def _conditions(row: Data) -> str:
    hostname = [row["hostname"]] if row["hostname"] else []
    return ", ".join([*hostname, *(_condition(condition) for condition in row["asks"])])


def _condition(condition: Data) -> str:
    inverted = "not " if condition["inverted"] else ""
    if condition["of"] == "path":
        return f"{inverted}{condition['kind']} {condition['wanted']}"
    kind = "" if condition["kind"] == "Exact" else f" {condition['kind']}"
    return f"{inverted}{condition['of']}{kind} {condition['wanted']}".rstrip()


def _values(values: Sequence[Data]) -> Iterator[TextLine]:
    heads = ("FIELD", "VALUE", "LEVEL", "SET BY", "WHERE")
    ordered = sorted(values, key=lambda value: (_kind(value), value["said"]["level"] == "envoy"))
    for at, (policy, fields) in enumerate(groupby(ordered, key=_kind)):
        if at:
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
        (f"{_GAP}{value['path']}", shown, setting["level"], _setter(setting), f"{_location(setting)}{remark}".strip()),
        style,
    )
    for overridden in value["over"]:
        where = ", removed by ".join(part for part in (_location(overridden), _removed_by(overridden)) if part)
        yield TextLine(
            (f"{_GAP}{_GAP}instead of", _short(overridden["value"]), overridden["level"], _setter(overridden), where),
            WEAK,
        )


def _access(access: Data) -> Iterator[TextLine]:
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
    place = f" ({_location(origin)})" if _location(origin) else ""
    return f"{origin['policy']['type']} {_setter(origin)}{place}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _removed_by(setting: Data) -> str:
    null = setting.get("removedBy")
    return "" if null is None else f"{_setter(null)} {_location(null)}".rstrip()


def _setter(setting: Data) -> str:
    if setting["policy"] is None:
        return "a default" if setting["level"] == "built-in" else "nobody"
    return f"{setting['policy']['name']} {setting['item']}"


def _location(setting: Data | None) -> str:
    return "" if setting is None or not setting["file"] else f"{setting['file']}:{setting['line']}"


def _after_comma(setting: Data | None) -> str:
    return f", {_location(setting)}" if _location(setting) else ""


def _short(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(element, str) for element in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def _shared_values(backends: Sequence[Data]) -> list[Data]:
    """The values of the backends if they are the same for all; else nothing."""
    values: list[Data] = list(backends[0]["values"]) if backends else []
    return values if all(backend["values"] == values for backend in backends if not backend["missing"]) else []


def _not_shown(shown_values: Sequence[Data], values: Sequence[Data]) -> list[Data]:
    """Values without those that are shown already: a field can act on the listener and on clusters."""
    shown = [(value["policy"], value["path"], value["said"]) for value in shown_values]
    return [value for value in values if (value["policy"], value["path"], value["said"]) not in shown]


def _written(values: Sequence[Data]) -> list[Data]:
    """The values that somebody has written, or would have if they had not been overridden."""
    return [value for value in values if value["said"]["policy"] is not None]


def _differing(backends: Sequence[Data]) -> Sequence[Data]:
    return [] if _shared_values(backends) else [backend for backend in backends if backend["values"]]


def _servers(names: Sequence[str]) -> str:
    if not names:
        return "servers that are no proxies of this mesh"
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{', '.join(names[:_FEW])}{more}"


def _limits(limits: Sequence[Data], client: str) -> Iterator[TextLine]:
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

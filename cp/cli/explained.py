"""Explanations as text: first the route of the call, then every value in force and who set it.

The text is made from the JSON data of the API, so that it is the same for files and for a control plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cp.cli.explained_values import access_lines, limit_lines, location, value_lines
from cp.cli.text_sections import BAD, CHOSEN, PLAIN, STRONG, WEAK, TextLine, TextWidth, columns, section

Data = Mapping[str, Any]
_Section: TypeAlias = tuple[str, Iterable[TextLine]]

_FEW: Final = 3
_MOST_ROWS: Final = 12
_CONNECTIONS: Final = frozenset({"tcp", "tls"})
_STANDING: Final = MappingProxyType(
    {
        "Refused": "The proxy refuses a part of what it was sent",
        "Out of sync": "Something is on its way to the proxy",
        "Over limit": "Documents exceed a limit, and a part of the proxy's configuration is left out",
        "Failed": "By a fault of the control plane, a part could not be made for the proxy",
    }
)
"""The states of a connected proxy that may do something else than what is explained."""


def lines(data: Data, width: TextWidth) -> Iterator[tuple[str, str]]:
    """Every line of an explanation, with its style."""
    yield f"{data['proxy']['name']}: {_call_text(data)}", STRONG
    yield "", PLAIN
    yield from columns(_summary(data), width)
    for title, rows in (*_sections_of_call(data), *_sections_of_servers(data), *_sections_of_caveats(data)):
        yield from section(title, rows, width)


def _sections_of_call(data: Data) -> Iterator[_Section]:
    """The routes that were tried, and the values that hold on the side of the caller."""
    values, backends = data["values"], data["backends"]
    yield "VALUES for clients of the gateway", value_lines((data["listener"] or {}).get("clients", []))
    if len(data["rows"]) > 1:
        yield "ROUTES, in the order in which they are tried", _rows(data["rows"])
    yield "VALUES", value_lines([*values, *_not_shown(values, _shared_values(backends))])
    for backend in _differing(backends):
        yield f"VALUES for {_service(backend)}", value_lines(_not_shown(values, backend["values"]))


def _sections_of_servers(data: Data) -> Iterator[_Section]:
    """What holds on the side of those that are called, and what both sides come to."""
    for server in data["servers"][:_MOST_ROWS]:
        yield f"VALUES at {_servers(server['servers'])}", value_lines(_written(server["values"]))
    for access in data["access"][:_MOST_ROWS]:
        yield f"ACCESS to {_servers(access['servers'])}", access_lines(access)
    if len(data["access"]) > _MOST_ROWS:
        yield f"ACCESS to others: {len(data['access']) - _MOST_ROWS} more answers", [TextLine(("…",))]
    for hop in data["hops"]:
        client = "CLIENT" if data["listener"] is None else "GATEWAY"
        yield f"LIMITS on the way to {_servers(hop['servers'])}", limit_lines(hop["limits"], client)


def _sections_of_caveats(data: Data) -> Iterator[_Section]:
    """Why the proxy may do something else than what is explained."""
    yield "NOT IN SYNC", _not_in_sync(data)
    yield "GOING ON", [TextLine((text,)) for text in filter(None, [data.get("rollout")])]
    yield "GOING ON with mTLS", [TextLine((text,)) for text in data.get("moves", ())]
    yield "LEFT OUT", [TextLine((text,), BAD) for text in data.get("leftOut", ())]
    yield "NOT KNOWN", [TextLine((text,), BAD) for text in data.get("notKnown", ())]
    yield "NOT ENFORCED", [TextLine((text,), BAD) for text in data["notEnforced"]]


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


def _summary(data: Data) -> Iterator[TextLine]:
    outbound, outcome = data["outbound"], data["outcome"]
    if outbound is not None:
        where = f"{outbound['address']}:{outbound['port']}, for {outbound['kind']} {outbound['destination']}"
        yield TextLine(("leaves by", f"{where} ({outbound['protocol']})"))
        yield from (_route(row, data) for row in data["rows"] if row["taken"])
    else:
        yield from _entrance(data["listener"])
        yield from (_route_of_gateway(row, data) for row in data["rows"] if row["taken"])
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


def _route_of_gateway(row: Data, data: Data) -> TextLine:
    if row["owner"] is None and not row["patched"] and not _is_unbuilt(data):
        return TextLine(("by route", "none: no route for this hostname takes the request"), BAD)
    return _route(row, data)


def _is_unbuilt(data: Data) -> bool:
    """True if the proxy answers in place of routes that are not built."""
    return bool(data.get("leftOut")) and data["outcome"]["reply"] is not None


def _route(row: Data, data: Data) -> TextLine:
    if row["owner"] is None and _is_unbuilt(data):
        return TextLine(("by route", "none: what should be here is left out"), BAD)
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
    """The answer of the proxy itself, or how and where the call goes on."""
    outcome, forward = data["outcome"], data["outcome"]["forward"]
    if outcome["reply"] is not None:
        yield _answer(outcome["reply"], is_unmatched=_is_unmatched(data))
        return
    if forward["path"] != outcome["path"]:
        yield TextLine(("asks for", forward["path"]))
    if forward["host"] != (outcome["host"] or None) and outcome["path"]:
        yield TextLine(("asks host", forward["host"] or "the name of the endpoint"))
    for backend in data["backends"]:
        yield _backend(backend, alone=len(data["backends"]) == 1, is_http=bool(outcome["path"]))


def _answer(reply: Data, *, is_unmatched: bool) -> TextLine:
    text = reply["body"] or reply["reason"]
    if is_unmatched:
        return TextLine(("answers", str(reply["status"])), BAD)
    if reply["status"] == 0:
        return TextLine(("answers", f"nothing, the connection is closed: {text}"), BAD)
    if reply["location"]:
        return TextLine(("answers", f"{reply['status']} to {reply['location']}"))
    return TextLine(("answers", f"{reply['status']}: {text}"), BAD)


def _is_unmatched(data: Data) -> bool:
    """Whether the last row of a gateway took the call, which is for what no route takes."""
    if _is_unbuilt(data):
        return False
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
    return TextLine((mark, owner, _conditions(row), location(row["place"]), row["why"]), style)


def _conditions(row: Data) -> str:
    hostname = [row["hostname"]] if row["hostname"] else []
    return ", ".join([*hostname, *(_condition(condition) for condition in row["asks"])])


def _condition(condition: Data) -> str:
    inverted = "not " if condition["inverted"] else ""
    if condition["of"] == "path":
        return f"{inverted}{condition['kind']} {condition['wanted']}"
    kind = "" if condition["kind"] == "Exact" else f" {condition['kind']}"
    return f"{inverted}{condition['of']}{kind} {condition['wanted']}".rstrip()


def _after_comma(setting: Data | None) -> str:
    return f", {location(setting)}" if location(setting) else ""


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

"""Tables of the rules and policies of a proxy, and of the effects of a policy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from cp.cli.tables import table, table_or

Data = Mapping[str, Any]

_STANDING: Final = MappingProxyType(
    {
        "Out of sync": "in force once the proxy has it (out of sync)",
        "Over limit": "in force, if it is in a part that is not left out (over limit)",
        "Failed": "in force, if it is in what could be made (failed)",
        "Offline": "in force once the proxy is back (offline)",
        "Unknown": "in force, if the proxy has it (unknown)",
    }
)
"""What becomes of a value that no other one overrides, by the state of the proxy; it is in force elsewhere."""


def rules(answer: Data, *, wide: bool) -> str:
    """The answer of `_rules` as a table: a line for each rule, with its conf and the origins of that."""
    rows = [(of["type"], *row) for of in answer["rules"] for row in _rule_rows(of)]
    rows += [
        (of["type"], of["where"], _conf(of["conf"]), _origins(of["origin"])) for of in answer.get("legacyRules", ())
    ]
    warnings = dict.fromkeys(warning for of in answer["rules"] for warning in of.get("warnings", ()))
    listed = table_or("no policy says anything for this proxy", ("TYPE", "FOR", "CONF", "ORIGIN"), rows, wide=wide)
    return listed + _legacy_failure(answer) + _warning_lines(warnings) + _going_on(answer)


def policies(answer: Data, *, wide: bool) -> str:
    """The answer of `_policies` as a table."""
    rows = ((policy["type"], policy["mesh"], policy["name"], _parts(policy)) for policy in answer["policies"])
    warnings = (
        f"{policy['type']} {policy['mesh']}/{policy['name']}: {warning}"
        for policy in answer["policies"]
        for warning in policy.get("warnings", ())
    )
    engine = f"\nPolicy engine: {answer['policyEngine']}\n" if "policyEngine" in answer else ""
    listed = table_or("no policy selects this proxy", ("TYPE", "MESH", "NAME", "INBOUNDS"), rows, wide=wide)
    return listed + _legacy(answer, wide=wide) + engine + _warning_lines(warnings) + _going_on(answer)


def _legacy(answer: Data, *, wide: bool) -> str:
    """What legacy policies are for on the proxy, and whether they hold there; nothing without any."""
    rows = [
        (policy["type"], policy["name"], place["where"], place.get("reason") or "in force")
        for policy in answer["policies"]
        for place in policy.get("for", ())
    ]
    listed = "\n" + table(("LEGACY POLICY", "NAME", "WHERE", "STATUS"), rows, wide=wide) if rows else ""
    return listed + _legacy_failure(answer)


def _legacy_failure(answer: Data) -> str:
    """Why nobody can tell what legacy policies do on the proxy; nothing where it is told."""
    failure = answer.get("legacyFailure")
    return f"\nWhat legacy policies do here {failure}\n" if failure else ""


def dataplanes(answer: Data, *, wide: bool) -> str:
    """The proxies of a policy: each value that it sets, and whether that is in force."""
    rows = [row for item in answer["items"] for row in _effects(item)]
    listed = table_or("it selects no proxy", ("DATAPLANE", "WHERE", "FIELD", "VALUE", "STATUS"), rows, wide=wide)
    return listed + "".join(f"\nnot looked at: {proposed}\n" for proposed in answer.get("notLookedAt", ()))


def _going_on(answer: Data) -> str:
    """What a rollout that is under way means for the proxy, if there is one."""
    return f"\n{answer['rollout']}\n" if answer.get("rollout") else ""


def _warning_lines(warnings: Iterable[str]) -> str:
    """Warnings below a table, about parts of it that are not in force."""
    lines = "".join(f"Warning: {warning}\n" for warning in warnings)
    return f"\n{lines}" if lines else ""


def _rule_rows(of: Data) -> Iterator[tuple[str, str, str]]:
    if "proxyRule" in of:
        yield "the proxy", _conf(of["proxyRule"]["conf"]), _origins(of["proxyRule"]["origin"])
    yield from _outbound_rows(of) if "gatewayToRules" not in of else _gateway_rows(of)
    for inbound in of["fromRules"]:
        for rule in inbound["rules"]:
            where = f"from {_matchers(rule['matchers'])} at port {inbound['inbound']['port']}"
            yield where, _conf(rule["conf"]), _origins(rule["origin"])
    for inbound in of["inboundRules"]:
        for rule in inbound["rules"]:
            where = f"{_conf(rule['match'])} at" if "match" in rule else "at"
            yield f"{where} port {inbound['inbound']['port']}", _confs(rule["conf"]), _origins(rule["origin"])


def _outbound_rows(of: Data) -> Iterator[tuple[str, str, str]]:
    yield from map(_resource_row, of["toResourceRules"])
    for rule in filter(_is_for_somebody, of["toRules"]):
        yield f"to {_matchers(rule['matchers'])}", _conf(rule["conf"]), _origins(rule["origin"])


def _gateway_rows(of: Data) -> Iterator[tuple[str, str, str]]:
    """Listener by listener: what is for the mesh as a whole is all of them in one, and holds at none."""
    for port in of["gatewayToRules"]:
        for rule in filter(_is_for_somebody, port["rules"]):
            where = f"to {_matchers(rule['matchers'])} at port {port['inbound']['port']} for {port['hostname']}"
            yield where, _conf(rule["conf"]), _origins(rule["origin"])
    yield from (_resource_row(rule) for rule in of["toResourceRules"] if rule["resourceMeta"]["type"] != "Mesh")


def _resource_row(rule: Data) -> tuple[str, str, str]:
    meta, section = rule["resourceMeta"], rule["resourceSectionName"]
    where = f"to {meta['type']} {meta['name']}{f':{section}' if section else ''}"
    return where, _confs(rule["conf"]), _origins(rule["origin"])


def _is_for_somebody(rule: Data) -> bool:
    """Whether a service can match. A target by labels, which selects real services only, gives a rule for no name."""
    nobody = {"key": "kuma.io/service", "not": False, "value": ""}
    return nobody not in rule["matchers"]


def _effects(item: Data) -> Iterator[tuple[str, str, str, str, str]]:
    name = item["name"]
    for effect in item["survives"]:
        yield name, effect["where"], effect["field"], _conf(effect["value"]), _in_force(effect, item.get("status", ""))
    for effect in item["overridden"]:
        yield name, effect["where"], effect["field"], _conf(effect["value"]), _overridden(effect["by"])
    for effect in item["withoutEffect"]:
        yield name, effect["where"], effect["field"], _conf(effect["value"]), effect["reason"]
    if "failure" in item:
        yield name, "", "", "", item["failure"]
    elif not any(item[part] for part in ("survives", "overridden", "withoutEffect")):
        yield name, "", "", "", "selected, and says nothing here"


def _in_force(effect: Data, status: str) -> str:
    """`status` is that of the proxy; empty in files, which say nothing of it."""
    if "refused" in effect:
        return f"refused: {'; '.join(effect['refused'])}"
    standing = _STANDING.get(status, "in force")
    if "removes" not in effect:
        return standing
    removed = ", ".join(map(_set_by, effect["removes"]))
    then = f"what holds is {_set_by(effect['then'])}" if "then" in effect else "no other policy sets it"
    return f"{standing}: removes {removed}; {then}"


def _overridden(by: Data) -> str:
    return f"removed by {_policy(by)}" if by["value"] is None else f"overridden by {_policy(by)}: {_conf(by['value'])}"


def _set_by(setting: Data) -> str:
    return f"{_conf(setting['value'])} of {_policy(setting)}"


def _policy(setting: Data) -> str:
    place = f" ({setting['file']}:{setting['line']})" if setting["file"] else ""
    return f"{setting['type']} {setting['name']}{place}"


def _parts(policy: Data) -> str:
    return ", ".join(str(part) for part in (*policy.get("inbounds", ()), *policy.get("listeners", ())))


def _matchers(matchers: Iterable[Data]) -> str:
    return (
        ", ".join(f"{matcher['key']}{'!' if matcher['not'] else ''}={matcher['value']}" for matcher in matchers)
        or "all"
    )


def _confs(confs: Iterable[Any]) -> str:
    return " ".join(map(_conf, confs))


def _conf(conf: Any) -> str:
    """A conf in one line: a text as it is, anything else as JSON."""
    return conf if isinstance(conf, str) else json.dumps(conf, ensure_ascii=False, separators=(",", ":"))


def _origins(origins: Iterable[Data]) -> str:
    return ", ".join(_origin(origin) for origin in origins)


def _origin(origin: Data) -> str:
    meta = origin.get("resourceMeta", origin)
    place = f" ({origin['file']}:{origin['line']})" if "file" in origin else ""
    index = f"[{origin['ruleIndex']}]" if "ruleIndex" in origin else ""
    return f"{meta['name']}{index}{place}"

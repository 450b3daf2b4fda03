"""Tables of the rules and policies of a proxy, and of the effects of a policy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cp.cli.output import table

Data = Mapping[str, Any]


def rules(answer: Data) -> str:
    """The answer of `_rules` as a table: a line for each rule, with its conf and the origins of that."""
    rows = [(of["type"], *row) for of in answer["rules"] for row in _rule_rows(of)]
    warnings = dict.fromkeys(warning for of in answer["rules"] for warning in of.get("warnings", ()))
    return table(("TYPE", "FOR", "CONF", "ORIGIN"), rows) + _warning_lines(warnings)


def policies(answer: Data) -> str:
    """The answer of `_policies` as a table."""
    rows = ((policy["type"], policy["mesh"], policy["name"], _parts(policy)) for policy in answer["policies"])
    warnings = (
        f"{policy['type']} {policy['mesh']}/{policy['name']}: {warning}"
        for policy in answer["policies"]
        for warning in policy.get("warnings", ())
    )
    return table(("TYPE", "MESH", "NAME", "INBOUNDS"), rows) + _warning_lines(warnings)


def dataplanes(items: Iterable[Data]) -> str:
    """The proxies of a policy: each value that it sets, and whether that is in force."""
    rows = [row for item in items for row in _effects(item)]
    return table(("DATAPLANE", "WHERE", "FIELD", "VALUE", "STATUS"), rows)


def _warning_lines(warnings: Iterable[str]) -> str:
    """Warnings below a table, about parts of it that are not in force."""
    lines = "".join(f"Warning: {warning}\n" for warning in warnings)
    return f"\n{lines}" if lines else ""


def _rule_rows(of: Data) -> Iterator[tuple[str, str, str]]:
    if "proxyRule" in of:
        yield "the proxy", _conf(of["proxyRule"]["conf"]), _origins(of["proxyRule"]["origin"])
    for rule in of["toResourceRules"]:
        meta, section = rule["resourceMeta"], rule["resourceSectionName"]
        where = f"to {meta['type']} {meta['name']}{f':{section}' if section else ''}"
        yield where, _confs(rule["conf"]), _origins(rule["origin"])
    for rule in filter(_is_for_somebody, of["toRules"]):
        yield f"to {_matchers(rule['matchers'])}", _conf(rule["conf"]), _origins(rule["origin"])
    for inbound in of["fromRules"]:
        for rule in inbound["rules"]:
            where = f"from {_matchers(rule['matchers'])} at port {inbound['inbound']['port']}"
            yield where, _conf(rule["conf"]), _origins(rule["origin"])
    for inbound in of["inboundRules"]:
        for rule in inbound["rules"]:
            where = f"{_conf(rule['match'])} at" if "match" in rule else "at"
            yield f"{where} port {inbound['inbound']['port']}", _confs(rule["conf"]), _origins(rule["origin"])


def _is_for_somebody(rule: Data) -> bool:
    """Whether a service can match. A target by labels, which selects real services only, gives a rule for no name."""
    nobody = {"key": "kuma.io/service", "not": False, "value": ""}
    return nobody not in rule["matchers"]


def _effects(item: Data) -> Iterator[tuple[str, str, str, str, str]]:
    name = item["name"]
    for effect in item["survives"]:
        yield name, effect["where"], effect["field"], _conf(effect["value"]), _in_force(effect)
    for effect in item["overridden"]:
        yield name, effect["where"], effect["field"], _conf(effect["value"]), _overridden(effect["by"])
    for effect in item["withoutEffect"]:
        yield name, effect["where"], effect["field"], _conf(effect["value"]), effect["reason"]
    if not any(item[part] for part in ("survives", "overridden", "withoutEffect")):
        yield name, "", "", "", "selected, and says nothing here"


def _in_force(effect: Data) -> str:
    if "removes" not in effect:
        return "in force"
    removed = ", ".join(map(_set_by, effect["removes"]))
    then = f"what holds is {_set_by(effect['then'])}" if "then" in effect else "no other policy sets it"
    return f"in force: removes {removed}; {then}"


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

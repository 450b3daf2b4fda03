"""What a text of documents comes to, as plain data: what is refused, and per proxy what selects it and what holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cp.insight.inspect import confs_by_scope
from cp.model.names import Destination, Identity
from cp.model.source import read_documents
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import CombinedConf, PolicyItem, PolicyRules, TagCondition, build, by_specificity, routes
from cp.rules.matching import match
from cp.rules.matching.profile import profile, sections
from cp.rules.merging import MergedConf, MergedField, Origin, Setting
from cp.translate.compiler import Compiler
from cp.translate.effective import BUILT_IN
from cp.translate.gateway import GatewayResult
from cp.translate.view.proxies import outbounds
from tests.rules.worlds import kinds
from tests.snapshots import policies

Data = dict[str, Any]

_PLACEHOLDER: Final = re.compile(r"^(\s*(?:- )?default: )\$?(\w*conf\d*)\s*$")
ROUTES: Final = ("MeshHTTPRoute", "MeshTCPRoute")
_SECONDS: Final = {"producer_conf": 11, "consumer_conf": 12}


def render_rules(text: str) -> Data:
    """The documents call their confs `conf1`, `$producer_conf` and so on: those are given values of their own here."""
    text, names = _with_confs(text)
    reading = read_documents(text)
    world = World.of(reading.documents, kinds())
    findings = [str(found) for found in (*reading.findings, *world.findings)]
    proxies = _together((proxy.display_name, _proxy(world, proxy, names)) for proxy in _dataplanes(world))
    return {**({"findings": findings} if findings else {}), **proxies}


def _together(proxies: Iterable[tuple[str, Data]]) -> Data:
    """Proxies for which everything is the same have one entry."""
    found: list[tuple[list[str], Data]] = []
    for name, data in proxies:
        known = next((names for names, one in found if one == data), None)
        if known is None:
            found.append(([name], data))
        else:
            known.append(name)
    return {", ".join(names): data for names, data in found}


def _with_confs(text: str) -> tuple[str, Mapping[int, str]]:
    """The text with a conf in place of each name of one, and the name that stood on each line."""
    lines, names = [], {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _PLACEHOLDER.match(line)
        if found is not None:
            names[number] = f"${found[2]}"
            line = f"{found[1]}{{http: {{requestTimeout: {_seconds(found[2])}s}}}}"  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines) + "\n", names


def _seconds(name: str) -> int:
    return _SECONDS[name] if name in _SECONDS else int(name.removeprefix("conf"))


def _dataplanes(world: World) -> Iterator[Resource]:
    for mesh in world.table("Mesh"):
        yield from world.table("Dataplane", mesh.name)


def _proxy(world: World, proxy: Resource, names: Mapping[int, str]) -> Data:
    matched = match(world, proxy)
    answer: Data = {"policies": [f"{kind} {one.policy.name}" for kind, found in matched.items() for one in found]}
    for kind, found in matched.items():
        if kind not in ROUTES and (rules := _of_kind(world, proxy, build(world, found, world.kinds[kind]), names)):
            answer[kind] = rules
    if table := _routes(world, proxy):
        answer["routes"] = table
    if holds := _holds(world, proxy, matched):
        answer["holds"] = holds
    return answer


def _of_kind(world: World, proxy: Resource, rules: PolicyRules, names: Mapping[int, str]) -> Data:
    """All rules but, for a proxy that calls nothing by tags, those for such calls."""
    resource_rules: Data = {}
    for rule in rules.to.all:
        name = called(rule.identity)
        resource_rules[f"{rule.identity.type} {name}" if name in resource_rules else name] = _combined(
            rule.combined, names
        )
    to = [{"to": clients(rule.matchers), **_combined(rule.combined, names)} for rule in rules.to_subsets.rules]
    answer = {"resourceRules": resource_rules, "toRules": to if _calls_tags(world, proxy) else []}
    for index, section in enumerate(sections(proxy)):
        found = [{"from": clients(one.matchers), **_combined(one.combined, names)} for one in rules.from_(index).rules]
        answer[f"fromRules on {section.get('port')}"] = found
    answer["proxyRule"] = {} if rules.proxy is None else _combined(rules.proxy, names)
    return {name: one for name, one in answer.items() if one}


def _calls_tags(world: World, proxy: Resource) -> bool:
    return bool(profile(proxy).gateway_type) or any(not one.destination.is_real for one in outbounds(world, proxy))


def _combined(combined: CombinedConf, names: Mapping[int, str]) -> Data:
    """As the documents write it if they call the confs by names, else as it is."""
    said = [name for item in combined.items if (name := names.get(_line(item))) is not None]
    if said:
        return {"conf": said[0] if len(said) == 1 else f"merge({', '.join(said)})"}
    confs = [dict(conf.value) for conf in combined.confs]
    return {"conf": confs[0] if len(confs) == 1 else confs, "origin": ", ".join(map(_origin, combined.origins))}


def _line(item: PolicyItem) -> int:
    return item.origin.source.line(item.layer.path)


def called(identity: Identity) -> str:
    name = f"{identity.name}.{identity.namespace}" if identity.namespace else identity.name
    return f"{name}:{identity.section}" if identity.section else name


def clients(matchers: Iterable[TagCondition]) -> str:
    return ", ".join(f"{one.key}{'≠' if one.is_not else '='}{one.value}" for one in matchers) or "all"


def _origin(origin: Origin) -> str:
    place = origin.part if origin.part == "default" else f"{origin.part}[{origin.index}]"
    return f"{origin.policy.name} {place}"


def _routes(world: World, proxy: Resource) -> Data:
    """The route table of each destination that has one, in the order in which routes are tried."""
    matched, answer = match(world, proxy), {}
    for kind in ROUTES:
        rules = build(world, matched.get(kind, ()), world.kinds[kind])
        for destination in dict.fromkeys(one.destination for one in outbounds(world, proxy)):
            found = routes(rules, destination) or ()
            table = [{"match": _match(match_), **_rule(rule)} for match_, rule in by_specificity(found)]
            table = table or [_rule(rule) for rule in found]
            if table:
                answer[f"{kind}s of {_to(destination)}"] = table
    return answer


def _match(found: Mapping[str, Any]) -> str:
    path = found.get("path") or {}
    words = [f"{path.get('type')} {path.get('value')}"] if path else []
    words += [found["method"]] if found.get("method") else []
    words += [f"{one.get('type')} header {one['name']}={one.get('value')}" for one in found.get("headers") or ()]
    return ", ".join(words)


def _rule(rule: Any) -> Data:
    weaker = [called(route) for route in rule.contributors[1:]]
    return {"owner": called(rule.owner), **({"beside": weaker} if weaker else {}), "default": dict(rule.default)}


def _to(destination: Destination) -> str:
    return destination.service if destination.identity is None else called(destination.identity)


def _holds(world: World, proxy: Resource, matched: Iterable[str]) -> Data:
    """Every field in force at every place that somebody set, with whom that overrides. Defaults are left out."""
    answer: Data = {}
    for kind in matched:
        if kind in ROUTES:
            continue
        for place, merged in confs_by_scope(world, proxy, world.kinds[kind], _gateway(world, proxy)):
            if fields := _fields(merged):
                answer.setdefault(str(place), {})[kind] = fields
    return answer


def _gateway(world: World, proxy: Resource) -> GatewayResult | None:
    return Compiler(policies()).proxy(world, proxy).proxy_class.gateway


def _fields(merged: MergedConf) -> Data:
    fields = (*merged.fields.values(), *merged.removed.values())
    written = (field for field in fields if field.winner.origin.part != BUILT_IN)
    return {field.path: _field(field) for field in sorted(written, key=lambda one: one.path)}


def _field(field: MergedField) -> str:
    text = _setting(field.winner)
    losers = (loser for loser in field.losers if loser.origin.part != BUILT_IN)
    return "; ".join([text, *map(_loser, losers)])


def _loser(setting: Setting) -> str:
    by = "" if setting.removed_by is None else f", removed by {setting.removed_by.origin.policy.name}"
    return f"over {_setting(setting)}{by}"


def _setting(setting: Setting) -> str:
    level = f", {setting.origin.level}" if setting.origin.level else ""
    value = "nothing" if setting.value is None else setting.value
    return f"{value} ({_origin(setting.origin)}{level})"

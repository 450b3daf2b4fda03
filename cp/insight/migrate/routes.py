"""TrafficRoutes as MeshHTTPRoutes and MeshTCPRoutes, as far as those can say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cp.insight.migrate.confs import Conf
from cp.insight.migrate.documents import PolicyDraft, destination, top
from cp.insight.migrate.facts import MeshFacts
from cp.insight.migrate.outbounds import Holding, conf_of, holding
from cp.insight.migrate.selection import ALL, Choice
from cp.resources.dataplane import SERVICE_TAG

_ANY: Final = "*"


def drafts(facts: MeshFacts, kind: str, choices: Sequence[Choice]) -> list[PolicyDraft]:
    """Routes for each service. Where nothing but the service itself is meant none is needed."""
    services = sorted(({choice.service for choice in choices} - {ALL}) | facts.services.keys())
    items = [(held, conf_of(facts, kind, held.choice.policy, held.service)) for held in holding(choices, services)]
    routed = {held.service for held, conf in items if conf and not _is_plain(conf, held.service)}
    together: dict[Any, list[tuple[Holding, Conf]]] = {}
    for held, conf in items:
        if conf and held.service in routed:
            together.setdefault((held.tags, held.choice.policy.key, held.choice.rank), []).append((held, conf))
    return [_draft(kind, of_policy) for of_policy in together.values()]


def _draft(kind: str, items: Sequence[tuple[Holding, Conf]]) -> PolicyDraft:
    first = items[0][0]
    to = [{"targetRef": destination(held.service), "rules": _rules(conf, held.service)} for held, conf in items]
    return PolicyDraft(
        kind, first.tags, first.choice.strength, first.choice.policy.key, {"targetRef": top(first.tags), "to": to}
    )


def _rules(conf: Conf, service: str) -> list[dict[str, Any]]:
    if "rules" not in conf:
        return [{"default": {"backendRefs": _backends(conf["default"], service)}}]
    return [_rule(row, service) for row in reversed(conf["rules"])]


def _rule(row: Mapping[str, Any], service: str) -> dict[str, Any]:
    modify = row["default"].get("modify") or {}
    filters = list(_filters(modify))
    default = {**({"filters": filters} if filters else {}), "backendRefs": _backends(row["default"], service)}
    is_rewritten = bool((modify.get("path") or {}).get("rewritePrefix"))
    return {"matches": [_match(match, is_rewritten=is_rewritten) for match in row["matches"]], "default": default}


def _match(match: Mapping[str, Any], *, is_rewritten: bool) -> dict[str, Any]:
    """A prefix of the text as an expression: a PathPrefix is one of whole segments. Only that can be rewritten."""
    path = match.get("path") or {}
    if path.get("type") != "Prefix":
        return dict(match)
    if is_rewritten:
        return {**match, "path": {"type": "PathPrefix", "value": path["value"].rstrip("/") or "/"}}
    expression = {"type": "RegularExpression", "value": f"{re.escape(path['value'])}.*"}
    return {**match, "path": expression}


def _backends(default: Mapping[str, Any], service: str) -> list[dict[str, Any]]:
    return [_backend(reference, service) for reference in default.get("backendRefs") or ()]


def _backend(reference: Mapping[str, Any], service: str) -> dict[str, Any]:
    """What is left open is what was called."""
    tags = {name: value for name, value in (reference.get("tags") or {}).items() if value != _ANY}
    name = service if reference["name"] in {"", _ANY} else reference["name"]
    written = (
        {"kind": "MeshServiceSubset", "name": name, "tags": tags} if tags else {"kind": "MeshService", "name": name}
    )
    return {**written, "weight": reference["weight"]}


def _is_plain(conf: Conf, service: str) -> bool:
    """Whether all that it says is that calls go to the service itself."""
    rules = conf.get("rules") or [conf]
    backends = _backends(rules[0]["default"], service)
    is_only = len(rules) == 1 and len(backends) == 1 and not rules[0]["default"].get("modify")
    return is_only and {**backends[0], "weight": 1} == {"kind": "MeshService", "name": service, "weight": 1}


def _filters(modify: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for field, kind, key in (
        ("requestHeaders", "RequestHeaderModifier", "requestHeaderModifier"),
        ("responseHeaders", "ResponseHeaderModifier", "responseHeaderModifier"),
    ):
        if changes := _header_changes(modify.get(field) or {}):
            yield {"type": kind, key: changes}
    path, host = modify.get("path") or {}, modify.get("host") or {}
    rewrite: dict[str, Any] = {}
    if host.get("value"):
        rewrite["hostname"] = host["value"]
    if path.get("rewritePrefix"):
        rewrite["path"] = {"type": "ReplacePrefixMatch", "replacePrefixMatch": path["rewritePrefix"]}
    if rewrite:
        yield {"type": "URLRewrite", "urlRewrite": rewrite}


def _header_changes(headers: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for header in headers.get("add") or ():
        changes.setdefault("add" if header.get("append") else "set", []).append(
            {"name": header["name"], "value": header["value"]}
        )
    removed = [header["name"] for header in headers.get("remove") or ()]
    return {**changes, **({"remove": removed} if removed else {})}


def notes(choices: Sequence[Choice]) -> Iterator[str]:
    """What these routes say that no route with a targetRef can."""
    for policy in {choice.policy.key: choice.policy for choice in choices}.values():
        for index, rule in enumerate((policy.data.get("conf") or {}).get("http") or ()):
            modify, match = rule.get("modify") or {}, rule.get("match") or {}
            where = f"TrafficRoute {policy.name} conf.http[{index}]"
            if (modify.get("path") or {}).get("regex") or (modify.get("host") or {}).get("fromPath"):
                yield f"{where}: no filter of a MeshHTTPRoute rewrites by an expression; that is left out"
            if (match.get("path") or {}).get("prefix") not in {None, "/"}:
                written = "a PathPrefix" if (modify.get("path") or {}).get("rewritePrefix") else "an expression"
                yield f"{where}: a prefix of the text is written as {written}; a PathPrefix ends with a segment"
        if any(SERVICE_TAG not in destination for destination in _destinations(policy.data.get("conf") or {})):
            yield f"TrafficRoute {policy.name}: destinations without a service are written as the service called"


def _destinations(conf: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    for holder in (conf, *(conf.get("http") or ())):
        yield from (split.get("destination") or {} for split in holder.get("split") or ())
        if holder.get("destination") is not None:
            yield holder["destination"]

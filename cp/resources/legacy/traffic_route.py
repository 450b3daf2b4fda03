"""TrafficRoute: where what is sent to a service goes.

destination                    MeshHTTPRoute or MeshTCPRoute backendRefs, one; `*` is the service that was called
split                          backendRefs, several
split[].weight                 weight
split[].destination            MeshService, or MeshServiceSubset with other tags
loadBalancer                   MeshLoadBalancingStrategy loadBalancer, one of these:
loadBalancer.roundRobin        RoundRobin
loadBalancer.leastRequest      LeastRequest
loadBalancer.leastRequest.choiceCount
loadBalancer.ringHash          RingHash
loadBalancer.ringHash.hashFunction
loadBalancer.ringHash.minRingSize
loadBalancer.ringHash.maxRingSize
loadBalancer.random            Random
loadBalancer.maglev            Maglev
http                           MeshHTTPRoute rules, tried in the order in which they are written
http[].match                   matches, one
http[].match.method            method; by a prefix or an expression: headers
http[].match.method.prefix
http[].match.method.exact
http[].match.method.regex
http[].match.path              path
http[].match.path.prefix       a prefix of the text, so that `/api` fits `/apis` too
http[].match.path.exact
http[].match.path.regex
http[].match.headers           headers; of each, by its name:
http[].match.headers.*.prefix
http[].match.headers.*.exact
http[].match.headers.*.regex
http[].modify                  beside the filters of a MeshHTTPRoute:
http[].modify.path
http[].modify.path.rewritePrefix       RouteAction.prefix_rewrite
http[].modify.path.regex               RouteAction.regex_rewrite
http[].modify.path.regex.pattern
http[].modify.path.regex.substitution
http[].modify.host
http[].modify.host.value               RouteAction.host_rewrite_literal
http[].modify.host.fromPath            RouteAction.host_rewrite_path_regex
http[].modify.host.fromPath.pattern
http[].modify.host.fromPath.substitution
http[].modify.requestHeaders           as filters of a MeshHTTPRoute change them
http[].modify.requestHeaders.add
http[].modify.requestHeaders.add[].name
http[].modify.requestHeaders.add[].value
http[].modify.requestHeaders.add[].append
http[].modify.requestHeaders.remove
http[].modify.requestHeaders.remove[].name
http[].modify.responseHeaders
http[].modify.responseHeaders.add
http[].modify.responseHeaders.add[].name
http[].modify.responseHeaders.add[].value
http[].modify.responseHeaders.add[].append
http[].modify.responseHeaders.remove
http[].modify.responseHeaders.remove[].name
http[].split                   backendRefs of the rule
http[].split[].weight
http[].split[].destination
http[].destination             backendRefs of the rule
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cp.model.canonical import canonical_json
from cp.model.numbers import LARGEST, Natural
from cp.model.paths import entry
from cp.model.violation import Violation, at
from cp.resources.checks import absent, must_be_set, one_of, printable, regex_of_route, within
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.headers import HOST, header_name, header_value
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.selectors import ConnectionPolicy, matched_tags, of_callers
from cp.resources.schema import Schema, SensitiveMap, SensitiveText, only_set_name


class LegacySplit(Schema, frozen=True):
    weight: Natural | None = None
    destination: dict[str, str] | None = None


class NoSettings(Schema, frozen=True):
    """Has nothing to be set."""


class LegacyLeastRequest(Schema, frozen=True):
    choice_count: Natural | None = None


class LegacyRingHash(Schema, frozen=True):
    hash_function: str | None = None
    min_ring_size: Natural | None = None
    max_ring_size: Natural | None = None


class LegacyLoadBalancer(Schema, frozen=True):
    round_robin: NoSettings | None = None
    least_request: LegacyLeastRequest | None = None
    ring_hash: LegacyRingHash | None = None
    random: NoSettings | None = None
    maglev: NoSettings | None = None


class StringMatch(Schema, frozen=True):
    prefix: str | None = None
    exact: str | None = None
    regex: str | None = None


class HttpMatch(Schema, frozen=True):
    method: StringMatch | None = None
    path: StringMatch | None = None
    headers: SensitiveMap[StringMatch] | None = None


class RegexReplace(Schema, frozen=True):
    pattern: str = ""
    substitution: str = ""


class ModifyPath(Schema, frozen=True):
    rewrite_prefix: SensitiveText | None = None
    regex: RegexReplace | None = None


class ModifyHost(Schema, frozen=True):
    value: str | None = None
    from_path: RegexReplace | None = None


class AddHeader(Schema, frozen=True):
    name: str = ""
    value: SensitiveText = ""
    append: bool | None = None


class RemoveHeader(Schema, frozen=True):
    name: str = ""


class ModifyHeaders(Schema, frozen=True):
    add: list[AddHeader] | None = None
    remove: list[RemoveHeader] | None = None


class Modify(Schema, frozen=True):
    path: ModifyPath | None = None
    host: ModifyHost | None = None
    request_headers: ModifyHeaders | None = None
    response_headers: ModifyHeaders | None = None


class HttpRule(Schema, frozen=True):
    match: HttpMatch | None = None
    modify: Modify | None = None
    split: list[LegacySplit] | None = None
    destination: dict[str, str] | None = None


class TrafficRouteConf(Schema, frozen=True):
    split: list[LegacySplit] | None = None
    load_balancer: LegacyLoadBalancer | None = None
    destination: dict[str, str] | None = None
    http: list[HttpRule] | None = None


class TrafficRoute(ConnectionPolicy, frozen=True):
    conf: TrafficRouteConf | None = None


_LARGEST_RING: Final = 8_000_000
_DEFAULT_RING: Final = 1024
_HASH_FUNCTIONS: Final[Mapping[str, str]] = {"XX_HASH": "XXHash", "MURMUR_HASH_2": "MurmurHash2"}
_EVERY_REQUEST: Final[list[dict[str, Any]]] = [{"path": {"type": "PathPrefix", "value": "/"}}]
_TYPES: Final = {"exact": "Exact", "prefix": "Prefix", "regex": "RegularExpression"}


def validate(route: TrafficRoute, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from of_callers(route)
    if route.conf is None:
        yield absent("conf", "must be set", "give it `destination` or `split`")
    else:
        yield from at("conf", _conf(route.conf))


def _conf(conf: TrafficRouteConf) -> Iterator[Violation]:
    yield from _backends(conf)
    for index, rule in enumerate(conf.http or ()):
        yield from at(f"http[{index}]", _rule(rule))
    if conf.load_balancer is not None:
        yield from at("loadBalancer", _load_balancer(conf.load_balancer))


def _backends(conf: TrafficRouteConf | HttpRule) -> Iterator[Violation]:
    if conf.split is None and conf.destination is None:
        yield absent("", "has neither `destination` nor `split`", f"`destination: {{{SERVICE_TAG}: ...}}`")
    if conf.split is not None and conf.destination is not None:
        yield Violation("split", "cannot stand beside `destination`", "keep one of them")
    if conf.split is not None:
        yield from at("split", _split(conf.split))
    if conf.destination is not None:
        yield from at("destination", matched_tags(conf.destination))


def _split(splits: list[LegacySplit]) -> Iterator[Violation]:
    if not splits:
        yield absent("", "must have an entry")
        return
    for index, split in enumerate(splits):
        if split.weight is None:
            yield absent(f"[{index}].weight", "must be set", "0 gets nothing")
        yield from at(f"[{index}].destination", matched_tags(split.destination or {}))
    total = sum(split.weight or 0 for split in splits)
    if total == 0 and all(split.weight is not None for split in splits):
        yield Violation("", "has no weight above 0, so nobody gets anything")
    if total > LARGEST:
        yield Violation("", f"has weights of {total} together, and {LARGEST} is the most")


def _rule(rule: HttpRule) -> Iterator[Violation]:
    yield from at("match", _match(rule.match or HttpMatch()))
    if rule.modify is not None:
        yield from at("modify", _modify(rule.modify, rule.match or HttpMatch()))
    yield from _backends(rule)


def _match(match: HttpMatch) -> Iterator[Violation]:
    if match.method is None and match.path is None and not match.headers:
        yield absent("", "matches nothing in particular", "give it `path`, `method` or `headers`")
    if match.method is not None:
        yield from at("method", _string(match.method))
    if match.path is not None:
        yield from at("path", _string(match.path))
    for name, value in (match.headers or {}).items():
        path = f"headers{entry(name)}"
        yield from header_name(path, name.lower())
        yield from at(path, _string(value))


def _string(match: StringMatch) -> Iterator[Violation]:
    given = match.wire()
    if len(given) != 1:
        yield absent("", f"compares in {len(given)} ways, not one", "give it `exact`, `prefix` or `regex`")
    if match.prefix == "":
        yield absent("prefix", "must be set")
    if match.regex == "":
        yield absent("regex", "must be set")
    yield from regex_of_route("regex", match.regex or None)


def _modify(modify: Modify, match: HttpMatch) -> Iterator[Violation]:
    if modify.path is not None:
        yield from at("path", _path(modify.path, match))
    if modify.host is not None:
        yield from at("host", _host(modify.host))
    for name, headers in (("requestHeaders", modify.request_headers), ("responseHeaders", modify.response_headers)):
        if headers is not None:
            yield from at(name, _headers(headers))


def _path(path: ModifyPath, match: HttpMatch) -> Iterator[Violation]:
    if (path.rewrite_prefix is None) == (path.regex is None):
        yield absent("", "must have either `rewritePrefix` or `regex`")
    if path.rewrite_prefix == "":
        yield absent("rewritePrefix", "must be set")
    elif path.rewrite_prefix is not None and not (match.path and match.path.prefix):
        yield Violation("rewritePrefix", "needs a `prefix` in `match.path`", "match by `prefix`, or write `regex`")
    if path.regex is not None:
        yield from at("regex", _replace(path.regex))


def _host(host: ModifyHost) -> Iterator[Violation]:
    if (host.value is None) == (host.from_path is None):
        yield absent("", "must have either `value` or `fromPath`")
    if host.value == "":
        yield absent("value", "must be set")
    yield from printable("value", host.value)
    if host.from_path is not None:
        yield from at("fromPath", _replace(host.from_path))


def _replace(replace: RegexReplace) -> Iterator[Violation]:
    yield from must_be_set("pattern", replace.pattern)
    yield from must_be_set("substitution", replace.substitution)
    yield from regex_of_route("pattern", replace.pattern or None)


def _headers(headers: ModifyHeaders) -> Iterator[Violation]:
    for index, added in enumerate(headers.add or ()):
        yield from _changed_header(f"add[{index}].name", added.name)
        yield from must_be_set(f"add[{index}].value", added.value)
        yield from header_value(f"add[{index}].value", added.value)
    for index, removed in enumerate(headers.remove or ()):
        yield from _changed_header(f"remove[{index}].name", removed.name)


def _changed_header(path: str, name: str) -> Iterator[Violation]:
    if name.startswith(":") or name.lower() == HOST:
        yield Violation(path, f"`{name}` cannot be changed as a header", "write `modify.host` or `modify.path`")
    else:
        yield from header_name(path, name.lower())


def _load_balancer(balancer: LegacyLoadBalancer) -> Iterator[Violation]:
    if len(balancer.wire()) > 1:
        yield Violation("", f"chooses in {len(balancer.wire())} ways, not one", "keep one of them")
    if balancer.least_request is not None and balancer.least_request.choice_count == 1:
        yield Violation("leastRequest.choiceCount", "must be 2 or more, not `1`", "leave it out for 2")
    if balancer.ring_hash is not None:
        yield from at("ringHash", _ring_hash(balancer.ring_hash))


def _ring_hash(conf: LegacyRingHash) -> Iterator[Violation]:
    yield from one_of("hashFunction", conf.hash_function, _HASH_FUNCTIONS)
    yield from within("minRingSize", conf.min_ring_size, 0, _LARGEST_RING)
    yield from within("maxRingSize", conf.max_ring_size, 0, _LARGEST_RING)
    least = conf.min_ring_size or (_DEFAULT_RING if conf.min_ring_size is None else 0)
    if conf.max_ring_size and conf.max_ring_size < least:
        yield Violation("maxRingSize", f"must not be below the `minRingSize` of {least}", "lower `minRingSize`")


def confs(data: Mapping[str, Any], _mesh: Mapping[str, Any], protocol: str) -> Iterator[LegacyConf]:
    conf = data.get("conf") or {}
    backends, where = _backend_refs(conf)
    if protocol == "tcp":
        places = {"default.backendRefs": f"conf.{where}"}
        yield LegacyConf("MeshTCPRoute", {"default": {"backendRefs": backends}}, places)
    else:
        yield _http_route(conf)
    if (balancer := _balancer(conf.get("loadBalancer") or {})) is not None:
        yield LegacyConf("MeshLoadBalancingStrategy", {"loadBalancer": balancer}, {"loadBalancer": "conf.loadBalancer"})


def _http_route(conf: Mapping[str, Any]) -> LegacyConf:
    """The rules from the last to the first, as those of routes are merged. Of two with one match the first counts."""
    rules: dict[bytes, tuple[dict[str, Any], dict[str, str]]] = {}
    for index, rule in enumerate(conf.get("http") or ()):
        matches = [_written_match(rule.get("match") or {})]
        rules.setdefault(canonical_json(matches), _row(matches, rule, f"conf.http[{index}]"))
    rules.setdefault(canonical_json(_EVERY_REQUEST), _row(_EVERY_REQUEST, {**conf, "modify": None}, "conf"))
    rows = list(reversed(rules.values()))
    places = {
        f"rules[{index}]{inner}": place for index, (_, of_row) in enumerate(rows) for inner, place in of_row.items()
    }
    return LegacyConf("MeshHTTPRoute", {"rules": [row for row, _ in rows]}, places)


def _row(matches: list[dict[str, Any]], rule: Mapping[str, Any], place: str) -> tuple[dict[str, Any], dict[str, str]]:
    backends, where = _backend_refs(rule)
    default: dict[str, Any] = {"backendRefs": backends}
    places = {"": place, ".matches": f"{place}.match", ".default.backendRefs": f"{place}.{where}"}
    if rule.get("modify"):
        default["modify"] = _in_small_letters(rule["modify"])
        places[".default.modify"] = f"{place}.modify"
    return {"matches": matches, "default": default}, places


def _written_match(match: Mapping[str, Any]) -> dict[str, Any]:
    """A match as a MeshHTTPRoute writes it, and prefixes of paths that are prefixes of the text."""
    written: dict[str, Any] = {}
    headers = [_header(name, value) for name, value in (match.get("headers") or {}).items()]
    path, method = match.get("path") or {}, match.get("method") or {}
    if path:
        kind = _compared(path)
        is_any = kind == "prefix" and path[kind] == "/"
        written["path"] = {"type": "PathPrefix" if is_any else _TYPES[kind], "value": path[kind]}
    if "exact" in method:
        written["method"] = method["exact"]
    elif method:
        headers.insert(0, _header(":method", method))
    return {**written, **({"headers": headers} if headers else {})}


def _header(name: str, value: Mapping[str, Any]) -> dict[str, str]:
    kind = _compared(value)
    return {"type": _TYPES[kind], "name": name.lower(), "value": value[kind]}


def _in_small_letters(modify: Mapping[str, Any]) -> dict[str, Any]:
    """Changes with the names of headers as Envoy knows them, and as newer policies have to write them."""
    sides = [side for side in ("requestHeaders", "responseHeaders") if modify.get(side)]
    changed = {side: {change: _named_small(headers) for change, headers in modify[side].items()} for side in sides}
    return {**modify, **changed}


def _named_small(headers: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    return [{**header, "name": header["name"].lower()} for header in headers or ()]


def _compared(match: Mapping[str, Any]) -> str:
    return only_set_name(**{kind: match.get(kind) for kind in _TYPES}) or "exact"


def _backend_refs(conf: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The services that something goes to, and the field that says so."""
    if conf.get("split") is None:
        return [_backend_ref(conf.get("destination") or {}, 1)], "destination"
    return [_backend_ref(split["destination"], split["weight"]) for split in conf["split"]], "split"


def _backend_ref(destination: Mapping[str, str], weight: int) -> dict[str, Any]:
    """The same tags: those with the value `*`, and those that are left out, are those of the call."""
    tags = {name: value for name, value in destination.items() if name != SERVICE_TAG}
    reference = {"kind": "MeshServiceSubset" if tags else "MeshService", "name": destination.get(SERVICE_TAG, "")}
    return {**reference, **({"tags": tags} if tags else {}), "weight": weight}


def _balancer(balancer: Mapping[str, Any]) -> dict[str, Any] | None:
    if balancer.get("leastRequest") is not None:
        return {
            "type": "LeastRequest",
            "leastRequest": {"choiceCount": balancer["leastRequest"].get("choiceCount") or 2},
        }
    if (ring := balancer.get("ringHash")) is not None:
        sizes = {name: ring[name] for name in ("minRingSize", "maxRingSize") if ring.get(name)}
        return {"type": "RingHash", "ringHash": {"hashFunction": _HASH_FUNCTIONS[ring["hashFunction"]], **sizes}}
    kinds = {"roundRobin": "RoundRobin", "random": "Random", "maglev": "Maglev"}
    return next(({"type": kind} for name, kind in kinds.items() if balancer.get(name) is not None), None)


TRAFFIC_ROUTE: Final = Kind(
    "TrafficRoute",
    "trafficroute",
    "traffic-routes",
    TrafficRoute,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.OUTBOUND, confs),
)

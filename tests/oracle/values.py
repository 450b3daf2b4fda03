"""Timeouts and retries: the levels that speak of a destination or a route, and what they come to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

from tests.oracle.destinations import Destination, means
from tests.oracle.matching import Item, items, named, routes_before
from tests.oracle.merging import Conf, merged, value
from tests.oracle.reading import Documents, Resource

BUILT_IN: Final = {
    "connectionTimeout": "5s",
    "idleTimeout": "1h",
    "http.requestTimeout": "15s",
    "http.streamIdleTimeout": "30m",
}
"""What holds where nobody says anything, as in Kuma 2.14."""

_ROUTES: Final = {"MeshHTTPRoute", "MeshTCPRoute"}
_UNITS: Final = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600)}
_BY_HEADERS: Final = "retriableResponseHeaders"
_RETRY_ON: Final = {"http": {"gateway-error", "connect-failure", "refused-stream"}}
_RETRY_ON_GRPC: Final = {
    *("cancelled", "connect-failure", "gateway-error", "refused-stream", "reset", "resource-exhausted", "unavailable"),
}


def levels(
    documents: Documents, kind: str, proxy: Resource, destination: Destination, routes: Sequence[Resource] = ()
) -> list[Conf]:
    """What is said for the route, then for the section, the service and the mesh (record 0007).

    The rule of a service has the items for the mesh as well, and that of a section those of its service (matching and
    merging, Which destinations). The older way to name a route comes after the newer one (document 000, Backward
    compatibility and migration).
    """
    all_items = items(documents, kind, proxy, by_tag=destination.service is None)
    new = [item for item in all_items if item.top["kind"] not in _ROUTES]
    of_routes: list[Conf] = []
    for route in routes:
        of_routes.append(_conf([item for item in new if _is_for_route(documents, item, route)]))
        of_routes.append(_conf([item for item in all_items if _is_for_route_before(documents, item, route)]))
    return [*of_routes, *_of_destination(documents, new, destination)]


def _of_destination(documents: Documents, new: list[Item], destination: Destination) -> list[Conf]:
    if destination.service is None:
        new = [item for item in new if not _names_a_route(item.policy)]
    meant = {id(item): means(documents, item.policy, item.target, destination) for item in new}
    mesh = [item for item in new if item.target["kind"] == "Mesh"]
    service = [item for item in new if item in mesh or meant[id(item)] == "service"]
    section = [item for item in new if item in service or meant[id(item)] == "section"]
    return [_conf(section), _conf(service), _conf(mesh)]


def _names_a_route(policy: Resource) -> bool:
    """A policy that names a route is for real services alone (Kuma 2.14)."""
    return any(item["targetRef"]["kind"] in _ROUTES for item in policy.items("to"))


def _conf(items_of_level: list[Item]) -> Conf:
    return merged(item.conf for item in items_of_level)


def _is_for_route(documents: Documents, item: Item, route: Resource) -> bool:
    return item.target["kind"] == route.kind and route in named(documents, item.policy, item.target)


def _is_for_route_before(documents: Documents, item: Item, route: Resource) -> bool:
    return item.top["kind"] == route.kind and route in routes_before(documents, item.policy, item.top)


def timeout(confs: Sequence[Conf], path: str) -> Fraction:
    return seconds(value(confs, path) or BUILT_IN[path])


def seconds(text: str) -> Fraction:
    return sum(
        (Fraction(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|h|m|s)", text)), Fraction(0)
    )


def retry(confs: Sequence[Conf], protocol: str) -> dict[str, Any] | None:
    """None where nothing is tried again: nobody says anything for the protocol, or `numRetries` is 0 (record 0007)."""
    section = "grpc" if protocol == "grpc" else "http"
    fields = {name: value(confs, f"{section}.{name}") for name in ("numRetries", "perTryTimeout", "retryOn")}
    is_there = any(value([conf], section) for conf in confs)
    if not is_there or fields["numRetries"] == 0:
        return None
    per_try = fields["perTryTimeout"]
    return {
        "numRetries": fields["numRetries"],
        "perTryTimeout": None if per_try is None else seconds(per_try),
        "retryOn": _conditions(fields["retryOn"], section, by_headers=bool(value(confs, f"{section}.{_BY_HEADERS}"))),
    }


def _conditions(written: list[str] | None, section: str, *, by_headers: bool) -> Any:
    """Whether headers of responses come beside the usual conditions or in their place is said nowhere: None.

    A method is no condition: it says which requests are tried again, on the usual conditions if there are no others.
    """
    words = written or []
    has_conditions = not all(word.startswith("HttpMethod") for word in words)
    if not has_conditions and by_headers:
        return None
    usual = _RETRY_ON_GRPC if section == "grpc" else _RETRY_ON["http"]
    return {_condition(word) for word in words} | (set() if has_conditions else usual)


def _condition(word: str) -> str:
    """`GatewayError` is Envoy's `gateway-error`; a status and a method are as they are."""
    if word.startswith("HttpMethod") or word[0].isdigit():
        return word
    kebab = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "-", word).lower()
    return "cancelled" if kebab == "canceled" else kebab

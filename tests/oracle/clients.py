"""How long an inbound waits for one client, by what MeshTimeouts say, and by what the inbound is served.

All rules that a client meets are merged; the narrower rule wins (matching and merging, Which clients).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from envoy.config.route.v3.route_components_pb2 import Route
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.type.matcher.v3.string_pb2 import StringMatcher

from cp.translate.packing import ROUTES
from cp.translate.snapshot import Snapshot
from tests.oracle.door import Client
from tests.oracle.matching import Item, strength
from tests.oracle.merging import merged, value
from tests.oracle.permissions import Caller, is_for, meets
from tests.oracle.reading import Data, Documents, Resource
from tests.oracle.values import seconds

KIND: Final = "MeshTimeout"
BUILT_IN: Final = {"http.requestTimeout": "0s", "http.streamIdleTimeout": "1h"}
"""What holds where nobody says anything, as in Kuma 2.14."""

Timeouts = tuple[Fraction, ...]


def timeouts(documents: Documents, server: Resource, inbound: Data, caller: Caller | None) -> Timeouts:
    """Without a caller: of those who show nothing, as they speak plain text."""
    policies = [policy for policy in documents.of(KIND) if is_for(documents, policy, server, inbound)]
    rules = [rule for policy in policies for rule in _rules(policy) if _is_met(rule[1], caller)]
    rules.sort(key=lambda rule: (_narrowness(rule[1]), strength(rule[0], {"kind": "Mesh"})))
    conf = merged(item.conf for item, _ in rules)
    return tuple(seconds(value([conf], path) or built_in) for path, built_in in BUILT_IN.items())


def _rules(policy: Resource) -> Iterator[tuple[Item, Data]]:
    """Each match of an item is a rule of its own. `from` is for everybody, where there are no `rules`."""
    for index, item in enumerate(policy.items("rules") or policy.items("from")):
        for match in item.get("matches") or [{}]:
            yield Item(policy, index, {"kind": "Mesh"}, item["default"]), match


def _is_met(match: Data, caller: Caller | None) -> bool:
    return not match or (caller is not None and all(meets(match, caller)))


def _narrowness(match: Data) -> tuple[Any, ...]:
    """The wider comes first: for all, by a server name, by a prefix, by a name; and of prefixes the shorter one."""
    spiffe = match.get("spiffeID") or {"type": "", "value": ""}
    return (bool(match), bool(spiffe["value"]), spiffe["type"] == "Exact", bool(match.get("sni")), len(spiffe["value"]))


def served_timeouts(snapshot: Snapshot, server: Resource, inbound: Data, client: Client | None) -> Timeouts:
    """What the first row says that takes a request of a client. Without one: in plain text."""
    packed = snapshot.get(ROUTES, f"inbound:{server.spec['networking']['address']}:{inbound['port']}")
    assert packed is not None
    (host,) = RouteConfiguration.FromString(packed.body).virtual_hosts
    action = next(row for row in host.routes if takes(row, client)).route
    durations = (action.timeout, action.idle_timeout)
    return tuple(duration.seconds + Fraction(duration.nanos, 10**9) for duration in durations)


def takes(row: Route, client: Client | None) -> bool:
    shown = (
        {} if client is None else {"x-koguma-client-uris": client.uris, "x-koguma-server-name": [client.server_name]}
    )
    return all(_fits(header.string_match, shown.get(header.name, ())) for header in row.match.headers)


def _fits(matcher: StringMatcher, values: Sequence[str]) -> bool:
    """Envoy shows the header with all names in one text, and no header where there is nothing to show."""
    text = ",".join(values)
    if matcher.HasField("safe_regex"):
        return bool(text) and re.fullmatch(matcher.safe_regex.regex, text) is not None
    return bool(text) and text == matcher.exact

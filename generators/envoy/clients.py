"""HTTP filters that act for certain clients only: for each client the first one whose conditions it meets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from envoy.extensions.common.matching.v3.extension_matcher_pb2 import ExtensionWithMatcher
from envoy.extensions.filters.common.matcher.action.v3.skip_action_pb2 import SkipFilter
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.extensions.matching.common_inputs.network.v3.network_inputs_pb2 import ServerNameInput
from envoy.extensions.matching.common_inputs.ssl.v3.ssl_inputs_pb2 import UriSanInput
from envoy.type.matcher.v3.http_inputs_pb2 import HttpRequestHeaderMatchInput
from xds.type.matcher.v3.matcher_pb2 import Matcher

from generators.envoy.edit import pack

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from generators.proxy import Tags

Client: TypeAlias = Mapping[str, Any]
"""The conditions on clients of a filter: `tags` and `not`, `spiffeID`, `sni`. Without any, it is for all clients."""

Predicate: TypeAlias = Matcher.MatcherList.Predicate

TAGS_HEADER: Final = "x-kuma-tags"
"""The header in which a proxy sends its tags to those that it calls."""

_TLS: Final = frozenset({"spiffeID", "sni"})
_MATCHER: Final = "envoy.filters.http.match_delegate"


def tags_header_value(tags: Tags) -> str:
    """Tags as the value of `TAGS_HEADER`; a name may have several values."""
    values: dict[str, list[str]] = {}
    for name, value in sorted(set(tags)):
        values.setdefault(name, []).append(value)
    return "".join(f"&{name}={','.join(values_of_name)}&" for name, values_of_name in values.items())


def by_tags(client: Client) -> bool:
    """Whether the conditions are about the tags of a client."""
    return bool(client.get("tags") or client.get("not"))


def first_fitting(filters: Sequence[tuple[Client, Sequence[HttpFilter]]], *, over_tls: bool) -> Iterator[HttpFilter]:
    """The filters, each skipped for clients that do not meet its conditions or that met those of an earlier one.

    Filters with conditions about TLS are left out on listeners without TLS: no client meets them there, but Envoy
    would find no input to match and apply the filter to all clients.
    """
    earlier_clients: list[Predicate] = []
    for client, client_filters in filters:
        if not over_tls and _TLS.intersection(client):
            continue
        client_predicate = _all(list(_predicates(client)))
        if client_predicate in earlier_clients:
            continue
        passed_over = [
            *earlier_clients,
            *([Predicate(not_matcher=client_predicate)] if client_predicate is not None else []),
        ]
        yield from (_unless(passed_over, http_filter) for http_filter in client_filters)
        if client_predicate is None:
            return
        earlier_clients.append(client_predicate)


def _unless(predicates: Sequence[Predicate], http_filter: HttpFilter) -> HttpFilter:
    if not predicates:
        return http_filter
    wrapped = ExtensionWithMatcher()
    wrapped.extension_config.name = http_filter.name
    wrapped.extension_config.typed_config.CopyFrom(http_filter.typed_config)
    for predicate in predicates:
        matcher = wrapped.xds_matcher.matcher_list.matchers.add(predicate=predicate)
        matcher.on_match.action.name = "skip"
        matcher.on_match.action.typed_config.CopyFrom(pack(SkipFilter()))
    return HttpFilter(name=_MATCHER, typed_config=pack(wrapped))


def _predicates(client: Client) -> Iterator[Predicate]:
    for name, value in sorted((client.get("tags") or {}).items()):
        yield _tag(name, value)
    for name, value in sorted(client.get("not") or ()):
        yield Predicate(not_matcher=_tag(name, value))
    if (spiffe := client.get("spiffeID")) is not None:
        yield _spiffe(spiffe["value"], is_prefix=spiffe.get("type") == "Prefix")
    if (sni := client.get("sni")) is not None:
        yield _compared("server_name", ServerNameInput(), exact=sni["value"])


def _tag(name: str, value: str) -> Predicate:
    predicate = _compared("tags", HttpRequestHeaderMatchInput(header_name=TAGS_HEADER))
    regex = predicate.single_predicate.value_match.safe_regex
    regex.google_re2.SetInParent()
    regex.regex = f".*&{re.escape(name)}=([^&]*,)?{re.escape(value)}(,[^&]*)?&.*"
    return predicate


def _spiffe(value: str, *, is_prefix: bool) -> Predicate:
    """A client with such a URI. The input has all URIs of its certificate in one text, with commas between them."""
    predicate = _compared("uri_san", UriSanInput())
    regex = predicate.single_predicate.value_match.safe_regex
    regex.google_re2.SetInParent()
    regex.regex = f"(.*,)?{re.escape(value)}" + (".*" if is_prefix else "(,.*)?")
    return predicate


def _compared(name: str, read: Message, **matcher: str) -> Predicate:
    predicate = Predicate()
    predicate.single_predicate.input.name = name
    predicate.single_predicate.input.typed_config.CopyFrom(pack(read))
    for kind, value in matcher.items():
        setattr(predicate.single_predicate.value_match, kind, value)
    return predicate


def _all(predicates: Sequence[Predicate]) -> Predicate | None:
    """All of some predicates; None without any. Envoy rejects an `and` of fewer than two."""
    if len(predicates) <= 1:
        return predicates[0] if predicates else None
    conjunction = Predicate()
    conjunction.and_matcher.predicate.extend(predicates)
    return conjunction

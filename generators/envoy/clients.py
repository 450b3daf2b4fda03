"""HTTP filters that act for certain clients only: for each client the first one whose conditions it meets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from envoy.extensions.common.matching.v3.extension_matcher_pb2 import ExtensionWithMatcher
from envoy.extensions.filters.common.matcher.action.v3.skip_action_pb2 import SkipFilter
from envoy.extensions.filters.http.composite.v3.composite_pb2 import Composite, ExecuteFilterAction
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.extensions.matching.common_inputs.network.v3.network_inputs_pb2 import ServerNameInput
from envoy.extensions.matching.common_inputs.ssl.v3.ssl_inputs_pb2 import UriSanInput
from envoy.type.matcher.v3.http_inputs_pb2 import HttpRequestHeaderMatchInput
from xds.type.matcher.v3.matcher_pb2 import Matcher

from generators.envoy.edit import pack

if TYPE_CHECKING:
    from envoy.config.route.v3.route_pb2 import RouteConfiguration
    from google.protobuf.message import Message

    from generators.proxy import Tags

Client: TypeAlias = Mapping[str, Any]
"""The conditions on clients of a filter: `tags` and `not`, `spiffeID`, `sni`. Without any, it is for all clients.

`any` has several such conditions, of which one has to be met.
"""

Predicate: TypeAlias = Matcher.MatcherList.Predicate

_Choice: TypeAlias = "tuple[Predicate | None, Sequence[HttpFilter]]"
"""The filters of some clients, and what a client has to meet; None: it is for all."""

TAGS_HEADER: Final = "x-kuma-tags"
"""The header in which a proxy sends its tags to those that it calls."""

_TLS: Final = frozenset({"spiffeID", "sni"})
_MATCHER: Final = "envoy.filters.http.match_delegate"
_COMPOSITE: Final = "envoy.filters.http.composite"


def tags_header_value(tags: Tags) -> str:
    """Tags as the value of `TAGS_HEADER`; a name may have several values."""
    values: dict[str, list[str]] = {}
    for name, value in sorted(set(tags)):
        values.setdefault(name, []).append(value)
    return "".join(f"&{name}={','.join(values_of_name)}&" for name, values_of_name in values.items())


def by_tags(client: Client) -> bool:
    """Whether the conditions are about the tags of a client."""
    return bool(client.get("tags") or client.get("not") or client.get("any"))


def first_fitting(filters: Sequence[tuple[Client, Sequence[HttpFilter]]], *, over_tls: bool) -> Iterator[HttpFilter]:
    """The filters, of which for each client those act whose conditions are the first that it meets.

    Filters with conditions about TLS are left out on listeners without TLS: no client meets them there, but Envoy
    would find no input to match and apply the filter to all clients.
    """
    possible = (
        (client, client_filters) for client, client_filters in filters if over_tls or not _TLS.intersection(client)
    )
    choices = list(_distinct((_all(list(_predicates(client))), client_filters) for client, client_filters in possible))
    if len(choices) > 1:
        yield from _chosen_filters(choices)
        return
    for predicate, client_filters in choices:
        yield from (_only_for(predicate, http_filter) for http_filter in client_filters)


def _distinct(choices: Iterable[_Choice]) -> Iterator[_Choice]:
    """Those that a client can come to: each condition once, and nothing behind what is for all clients."""
    seen: set[bytes] = set()
    for predicate, client_filters in choices:
        condition = b"" if predicate is None else predicate.SerializeToString(deterministic=True)
        if condition not in seen:
            seen.add(condition)
            yield predicate, client_filters
        if predicate is None:
            return


def _only_for(predicate: Predicate | None, http_filter: HttpFilter) -> HttpFilter:
    if predicate is None:
        return http_filter
    matcher = Matcher()
    _write_skip(matcher.matcher_list.matchers.add(predicate=Predicate(not_matcher=predicate)).on_match)
    return _delegated(http_filter, matcher)


def _chosen_filters(choices: Sequence[_Choice]) -> Iterator[HttpFilter]:
    """One filter that becomes that of the client, and a second one where a client has two.

    A filter for each client would have to name all clients before it: as many conditions as the square of the clients.
    """
    for filters in zip_longest(*(client_filters for _, client_filters in choices)):
        matcher = Matcher()
        for (predicate, _), http_filter in zip(choices, filters, strict=True):
            listed = None if predicate is None else matcher.matcher_list.matchers.add(predicate=predicate)
            _write_choice(matcher.on_no_match if listed is None else listed.on_match, http_filter)
        yield _delegated(HttpFilter(name=_COMPOSITE, typed_config=pack(Composite())), matcher)


def _write_choice(on_match: Matcher.OnMatch, http_filter: HttpFilter | None) -> None:
    if http_filter is None:
        _write_skip(on_match)
        return
    action = ExecuteFilterAction()
    action.typed_config.name = http_filter.name
    action.typed_config.typed_config.CopyFrom(http_filter.typed_config)
    on_match.action.name = "execute"
    on_match.action.typed_config.CopyFrom(pack(action))


def _write_skip(on_match: Matcher.OnMatch) -> None:
    on_match.action.name = "skip"
    on_match.action.typed_config.CopyFrom(pack(SkipFilter()))


def _delegated(http_filter: HttpFilter, matcher: Matcher) -> HttpFilter:
    wrapped = ExtensionWithMatcher(xds_matcher=matcher)
    wrapped.extension_config.name = http_filter.name
    wrapped.extension_config.typed_config.CopyFrom(http_filter.typed_config)
    return HttpFilter(name=_MATCHER, typed_config=pack(wrapped))


def _predicates(client: Client) -> Iterator[Predicate]:
    if client.get("any"):
        yield _any(
            [predicate for choice in client["any"] if (predicate := _all(list(_predicates(choice)))) is not None]
        )
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
    predicate = _compared("uri_san", UriSanInput())
    regex = predicate.single_predicate.value_match.safe_regex
    regex.google_re2.SetInParent()
    regex.regex = uri_pattern(value, is_prefix=is_prefix)
    return predicate


def uri_pattern(value: str, *, is_prefix: bool) -> str:
    """A client with such a URI, as a regular expression for all URIs of its certificate with commas between them."""
    return f"(.*,)?{re.escape(value)}" + (".*" if is_prefix else "(,.*)?")


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


def _any(predicates: Sequence[Predicate]) -> Predicate:
    """One of several predicates."""
    disjunction = Predicate()
    disjunction.or_matcher.predicate.extend(predicates)
    return disjunction


def without_tags(table: RouteConfiguration) -> None:
    """Keep the tags of clients from the workload."""
    if TAGS_HEADER not in table.request_headers_to_remove:
        table.request_headers_to_remove.append(TAGS_HEADER)

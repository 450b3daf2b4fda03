"""Rows of an inbound's route table for some of its clients, whom headers tell apart that Envoy itself writes.

Routes cannot be chosen by what a certificate says, only by headers. Before Envoy looks for a route it removes these
headers, whoever wrote them, and writes what the connection shows; the workload does not see them (record 0062).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from envoy.config.common.mutation_rules.v3.mutation_rules_pb2 import HeaderMutation as Mutation
from envoy.extensions.http.early_header_mutation.header_mutation.v3.header_mutation_pb2 import HeaderMutation

from generators.drafts import ListenerDraft, RouteDraft
from generators.envoy.clients import Client, uri_pattern
from generators.envoy.edit import OVERWRITE, pack

if TYPE_CHECKING:
    from envoy.config.route.v3.route_components_pb2 import RouteMatch

URIS_HEADER: Final = "x-koguma-client-uris"
"""The header with the URIs of a client's certificate, with commas between them."""

SERVER_NAME_HEADER: Final = "x-koguma-server-name"
"""The header with the server name that a client asked for."""

_SHOWN: Final = {URIS_HEADER: "%DOWNSTREAM_PEER_URI_SAN%", SERVER_NAME_HEADER: "%REQUESTED_SERVER_NAME%"}
_ASKED: Final = {"spiffeID": URIS_HEADER, "sni": SERVER_NAME_HEADER}
_MUTATION: Final = "envoy.http.early_header_mutation.header_mutation"


def show_clients(draft: ListenerDraft, clients: Iterable[Client]) -> None:
    """Write the headers by which these clients are told apart: without TLS nobody has them."""
    asked = {condition for client in clients for condition in client}
    headers = [header for condition, header in _ASKED.items() if condition in asked]
    if draft.manager is None or draft.table is None or not headers:
        return
    mutation = HeaderMutation(mutations=[change for header in headers for change in _changes(draft, header)])
    draft.manager.early_header_mutation_extensions.add(name=_MUTATION, typed_config=pack(mutation))
    draft.table.request_headers_to_remove.extend(headers)


def _changes(draft: ListenerDraft, header: str) -> Iterator[Mutation]:
    yield Mutation(remove=header)
    if draft.over_tls:
        change = Mutation()
        change.append.header.key, change.append.header.value = header, _SHOWN[header]
        change.append.append_action = OVERWRITE
        yield change


def row_for(client: Client, row: RouteDraft) -> RouteDraft:
    """A copy of a row that takes only requests of some clients."""
    copy = RouteDraft(row.site, type(row.message)(), row.protocol, row.is_inbound)
    copy.message.CopyFrom(row.message)
    _restrict(copy.message.match, client)
    return copy


def _restrict(match: RouteMatch, client: Client) -> None:
    if (spiffe := client.get("spiffeID")) is not None:
        pattern = uri_pattern(spiffe["value"], is_prefix=spiffe.get("type") == "Prefix")
        match.headers.add(name=URIS_HEADER).string_match.safe_regex.regex = pattern
    if (sni := client.get("sni")) is not None:
        match.headers.add(name=SERVER_NAME_HEADER).string_match.exact = sni["value"]

"""The headers that Envoy writes into a request before it tries routes: what its client shows over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy.extensions.http.early_header_mutation.header_mutation.v3.header_mutation_pb2 import HeaderMutation

from cp.insight.simulate.conditions import UnsimulatedFeature
from cp.insight.simulate.request import Call, Request
from cp.model.secret_texts import shown_value

if TYPE_CHECKING:
    from envoy.config.common.mutation_rules.v3.mutation_rules_pb2 import HeaderMutation as Mutation
    from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
        HttpConnectionManager,
    )

_URIS: Final = "%DOWNSTREAM_PEER_URI_SAN%"
_SERVER_NAME: Final = "%REQUESTED_SERVER_NAME%"


def with_client_headers(request: Request, manager: HttpConnectionManager, call: Call) -> Request:
    headers = dict(request.headers)
    for extension in manager.early_header_mutation_extensions:
        message = HeaderMutation()
        if not extension.typed_config.Unpack(message):
            raise UnsimulatedFeature(f"changes to headers by {extension.typed_config.type_url}")
        for mutation in message.mutations:
            _change(headers, mutation, call)
    return Request(headers)


def _change(headers: dict[str, tuple[str, ...]], mutation: Mutation, call: Call) -> None:
    """Write one change. A header with nothing to show is not written."""
    if mutation.WhichOneof("action") == "remove":
        headers.pop(mutation.remove.lower(), None)
        return
    header = mutation.append.header
    shown = {_URIS: ",".join(call.client_uris), _SERVER_NAME: call.server_name or ""}
    if header.value not in shown:
        raise UnsimulatedFeature(f"the header {header.key} with `{shown_value(header.key, header.value)}`")
    if value := shown[header.value]:
        headers[header.key.lower()] = (value,)

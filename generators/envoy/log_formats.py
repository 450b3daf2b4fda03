"""Formats of access logs: `%KUMA_...%` commands are replaced here, Envoy's commands are kept, all else is text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValueList

from generators.envoy.edit import literal
from generators.proxy import GatewayChain, GatewayHost, Inbound

if TYPE_CHECKING:
    from generators.proxy import Outbound

COMMANDS: Final = {
    "KUMA_MESH": "mesh",
    "KUMA_ZONE": "zone",
    "KUMA_WORKLOAD": "workload",
    "KUMA_SOURCE_SERVICE": "service",
    "KUMA_SOURCE_ADDRESS": "address",
    "KUMA_SOURCE_ADDRESS_WITHOUT_PORT": "address",
}
"""The field of `Sidecar` that each command needs."""

OF_REQUESTS: Final = (
    '[%START_TIME%] %KUMA_MESH% "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% '
    "%RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "
    '"%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-B3-TRACEID?X-DATADOG-TRACEID)%" "%REQ(X-REQUEST-ID)%" '
    '"%REQ(:AUTHORITY)%" "%KUMA_SOURCE_SERVICE%" "%KUMA_DESTINATION_SERVICE%" "%KUMA_SOURCE_ADDRESS_WITHOUT_PORT%" '
    '"%UPSTREAM_HOST%"'
)
OF_CONNECTIONS: Final = (
    "[%START_TIME%] %RESPONSE_FLAGS% %KUMA_MESH% %KUMA_SOURCE_ADDRESS_WITHOUT_PORT%(%KUMA_SOURCE_SERVICE%)->"
    "%UPSTREAM_HOST%(%KUMA_DESTINATION_SERVICE%) took %DURATION%ms, sent %BYTES_SENT% bytes, "
    "received: %BYTES_RECEIVED% bytes"
)

_NAME: Final = re.compile(r"%([A-Z][A-Z0-9_]*)")
_BRACKETS_END: Final = re.compile(r"[)\r\n\0]")
_END: Final = re.compile(r"(:[0-9]{1,5})?%")
_ARGUMENTS: Final = {
    **dict.fromkeys(("REQ", "RESP", "TRAILER"), re.compile(r":?[A-Za-z0-9_-]+(\?:?[A-Za-z0-9_-]+)?")),
    **dict.fromkeys(("DYNAMIC_METADATA", "CLUSTER_METADATA", "UPSTREAM_METADATA"), re.compile(r"[^:]+(:[^:]+)*")),
    "COMMON_DURATION": re.compile(r"[A-Z_]+:[A-Z_]+(:(ms|us|ns))?"),
    "ENVIRONMENT": re.compile(r"\w+"),
    "FILTER_STATE": re.compile(r"[^:]+(:(PLAIN|TYPED))?"),
}
"""The valid arguments of commands that need one."""

_CUT: Final = frozenset({"REQ", "RESP", "TRAILER"})
"""Commands that accept a maximum length."""

_TIMES: Final = frozenset({"START_TIME", "START_TIME_LOCAL", "EMIT_TIME", "EMIT_TIME_LOCAL"})
_ALONE: Final = frozenset(  # one word a line would fill three screens
    """
    RESPONSE_CODE RESPONSE_CODE_DETAILS RESPONSE_FLAGS RESPONSE_FLAGS_LONG BYTES_RECEIVED BYTES_SENT PROTOCOL
    UPSTREAM_PROTOCOL DURATION REQUEST_DURATION REQUEST_TX_DURATION RESPONSE_DURATION RESPONSE_TX_DURATION
    DOWNSTREAM_HANDSHAKE_DURATION ROUNDTRIP_DURATION UPSTREAM_CONNECTION_POOL_READY_DURATION GRPC_STATUS
    GRPC_STATUS_NUMBER UPSTREAM_WIRE_BYTES_SENT UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT
    UPSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DOWNSTREAM_WIRE_BYTES_RECEIVED
    DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_HEADER_BYTES_RECEIVED REQUEST_HEADERS_BYTES RESPONSE_HEADERS_BYTES
    RESPONSE_TRAILERS_BYTES UPSTREAM_HOST UPSTREAM_HOST_NAME UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_CLUSTER
    UPSTREAM_CLUSTER_RAW UPSTREAM_CONNECTION_ID UPSTREAM_REMOTE_ADDRESS UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT
    UPSTREAM_REMOTE_PORT UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT UPSTREAM_LOCAL_PORT
    UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_TLS_CIPHER UPSTREAM_TLS_VERSION UPSTREAM_TLS_SESSION_ID
    UPSTREAM_PEER_ISSUER UPSTREAM_PEER_CERT UPSTREAM_PEER_SUBJECT UPSTREAM_TRANSPORT_FAILURE_REASON
    DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT
    DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_PORT
    DOWNSTREAM_LOCAL_ADDRESS DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_PORT DOWNSTREAM_PEER_URI_SAN
    DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_IP_SAN DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_PEER_ISSUER
    DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_CERT
    DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_LOCAL_DNS_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_SUBJECT
    DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_VERSION DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TRANSPORT_FAILURE_REASON
    CONNECTION_ID STREAM_ID CONNECTION_TERMINATION_DETAILS REQUESTED_SERVER_NAME ROUTE_NAME VIRTUAL_CLUSTER_NAME
    HOSTNAME LOCAL_REPLY_BODY FILTER_CHAIN_NAME ACCESS_LOG_TYPE UNIQUE_ID TRACE_ID TLS_JA3_FINGERPRINT
    BYTES_RETRANSMITTED PACKETS_RETRANSMITTED DOWNSTREAM_DIRECT_LOCAL_ADDRESS DOWNSTREAM_DIRECT_LOCAL_PORT
    DOWNSTREAM_PEER_CERT_V_START DOWNSTREAM_PEER_CERT_V_END UPSTREAM_PEER_CERT_V_START UPSTREAM_PEER_CERT_V_END
    UPSTREAM_PEER_URI_SAN UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN UPSTREAM_LOCAL_URI_SAN UPSTREAM_LOCAL_DNS_SAN
    UPSTREAM_LOCAL_IP_SAN
    """.split()  # noqa: SIM905
)
_DEEPEST: Final = 30


@dataclass(frozen=True, slots=True)
class FormatCommand:
    """A command, with its position in the format."""

    name: str
    argument: str | None
    """The text in its brackets."""

    cut: str | None
    start: int
    end: int


def commands(text: str) -> Iterator[FormatCommand]:
    """The commands in a format, in linear time: one closing bracket may end many open ones, so it is searched once."""
    at, end_of_brackets = 0, -1
    while name := _NAME.search(text, at):
        opens = name.end()
        argument, end_of_arguments = None, opens
        if text.startswith("(", opens):
            if end_of_brackets < opens:
                end_match = _BRACKETS_END.search(text, opens)
                end_of_brackets = end_match.start() if end_match else len(text)
            if text.startswith(")", end_of_brackets):
                argument, end_of_arguments = text[opens + 1 : end_of_brackets], end_of_brackets + 1
        end = _END.match(text, end_of_arguments)
        at = name.end() if end is None else end.end()
        if end is not None:
            yield FormatCommand(name[1], argument, end[1], name.start(), end.end())


def command_values(site: Outbound | Inbound | GatewayChain | GatewayHost) -> Mapping[str, str]:
    """The values of the `%KUMA_...%` commands on a listener. The callers of an inbound are unknown.

    A gateway calls many services from one listener, so which of them is left open.
    """
    sidecar, is_inbound = site.sidecar, isinstance(site, Inbound)
    return {
        **{command: getattr(sidecar, field) for command, field in COMMANDS.items()},
        "KUMA_SOURCE_SERVICE": "unknown" if is_inbound else sidecar.service,
        "KUMA_DESTINATION_SERVICE": "*" if isinstance(site, GatewayChain | GatewayHost) else site.service,
        "KUMA_SOURCE_ADDRESS": f"{sidecar.address}:0",
        "KUMA_TRAFFIC_DIRECTION": "INBOUND" if is_inbound else "OUTBOUND",
    }


def proxy_fields(text: str) -> Iterator[str]:
    """The fields of `Sidecar` that the commands in a text need."""
    return (COMMANDS[command.name] for command in commands(text) if command.name in COMMANDS)


def envoy_format(text: str, values: Mapping[str, str]) -> str:
    """A format for Envoy, with the mesh's commands replaced. Commands that Envoy would reject become text."""
    parts, end = [], 0
    for command in commands(text):
        written = text[command.start : command.end]
        parts += [_text(text[end : command.start]), _command(command, written, values)]
        end = command.end
    return "".join([*parts, _text(text[end:])])


def any_value(body: Any, values: Mapping[str, str], depth: int = 0) -> AnyValue:
    """The body of an OpenTelemetry record. Envoy accepts texts, lists and maps."""
    value = AnyValue()
    kind, content = next(iter(body.items()), ("", "")) if isinstance(body, Mapping) else ("stringValue", body)
    nested = content.get("values") or () if isinstance(content, Mapping) and depth < _DEEPEST else ()
    if kind == "arrayValue":
        value.array_value.values.extend(any_value(entry, values, depth + 1) for entry in nested)
    elif kind == "kvlistValue":
        for entry in nested:
            if isinstance(entry, Mapping):
                value.kvlist_value.values.add(
                    key=str(entry.get("key", "")), value=any_value(entry.get("value"), values, depth + 1)
                )
    else:
        value.string_value = envoy_format("" if content is None else str(content), values)
    return value


def key_values(pairs: Iterator[tuple[str, str]], values: Mapping[str, str]) -> KeyValueList:
    message = KeyValueList()
    for key, text in pairs:
        message.values.add(key=key, value=any_value(text, values))
    return message


def _command(command: FormatCommand, written: str, values: Mapping[str, str]) -> str:
    if command.name in values:
        return literal(values[command.name])
    return written if _is_known(command.name, command.argument, command.cut) else literal(written)


def _is_known(name: str, argument: str | None, cut: str | None) -> bool:
    if cut is not None and name not in _CUT:
        return False
    if name in _ARGUMENTS:
        return argument is not None and _ARGUMENTS[name].fullmatch(argument) is not None
    return name in _TIMES or (name in _ALONE and argument is None)


def _text(text: str) -> str:
    """Text outside of commands. `%%` stands for one percent sign, in a format as in Envoy."""
    return literal(text.replace("%%", "%"))

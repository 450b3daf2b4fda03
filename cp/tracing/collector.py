"""`TraceCollector`: where spans are sent, as our setting says it or as OpenTelemetry's environment variables do.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from cp.model.hosts import hosts_with_ports

OtlpProtocol: TypeAlias = Literal["grpc", "http/protobuf", "http/json"]

_TRACES: Final = "/v1/traces"
_HEADER_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_OF_THE_MESSAGE: Final = frozenset({"connection", "content-length", "content-type", "host", "te", "transfer-encoding"})
"""Headers that say what is sent, and not who sends it."""

_SHORTEST_SECRET: Final = 4


@dataclass(frozen=True, slots=True)
class TraceCollector:
    """One collector, and what it is shown with each request."""

    url: str
    """The whole URL to which spans are posted, or `grpc://HOST:PORT`, and `grpcs://HOST:PORT` with TLS."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Their values are secrets: keys and tokens of whoever may send."""

    @classmethod
    def of_base(cls, endpoint: str, headers: Mapping[str, str]) -> TraceCollector:
        """That of an endpoint for everything that OpenTelemetry has, with a path for each."""
        is_grpc = endpoint.startswith("grpc:")
        return cls(endpoint if is_grpc else f"{endpoint.rstrip('/')}{_TRACES}", headers)

    @classmethod
    def of_standard(cls, base: str, own: str, protocol: OtlpProtocol, headers: Mapping[str, str]) -> TraceCollector:
        """That of the standard variables: `own` is the endpoint for traces alone, and is taken as it is."""
        if protocol == "grpc":
            parts = urlsplit(own or base)
            return cls(f"{'grpcs' if parts.scheme == 'https' else 'grpc'}://{parts.netloc}", headers)
        return cls(own, headers) if own else cls.of_base(base, headers)

    def without_secrets(self, text: str) -> str:
        """A text of the collector's, which may repeat what it was shown."""
        parts = {part for value in self.headers.values() for part in (value, *value.split())}
        secrets = sorted((part for part in parts if len(part) >= _SHORTEST_SECRET), key=len, reverse=True)
        # All at once and the longest first: where one begins with another, its end would stay.
        return re.sub("|".join(map(re.escape, secrets)), "[redacted]", text, flags=re.IGNORECASE) if secrets else text


def is_endpoint(endpoint: str, *schemes: str) -> bool:
    """Whether this is a URL with a host, and perhaps a port and a path."""
    try:
        parts = urlsplit(endpoint)
        is_host = len(hosts_with_ports(parts.netloc, 0)) == 1
    except ValueError:
        return False
    return is_host and parts.scheme in schemes and not parts.query and not parts.fragment


def headers_of(text: str) -> Mapping[str, str]:
    """`NAME=VALUE,NAME=VALUE`, with the values percent-encoded. Raises `ValueError` without a word of it."""
    return dict(_headers(text))


def _headers(text: str) -> Iterator[tuple[str, str]]:
    for number, entry in enumerate(text.split(","), 1):
        name, equals, encoded = map(str.strip, entry.partition("="))
        if not entry.strip():
            continue
        if not equals or _HEADER_NAME.fullmatch(name) is None:
            raise ValueError(f"entry {number} does not begin with the name of a header and `=`")
        if name.lower() in _OF_THE_MESSAGE or name.lower().startswith("grpc-"):
            raise ValueError(f"entry {number} is a header that says what is sent, which is not to be chosen")
        value = unquote(encoded, errors="replace")
        if _HEADER_VALUE.fullmatch(value) is None:
            raise ValueError(f"entry {number} has a character that no header may have")
        yield name.lower(), value

"""The collector that telemetry is sent to by OpenTelemetry: an endpoint, or a MeshOpenTelemetryBackend."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cp.model.hosts import is_ip
from cp.model.source import NAME_LABEL
from cp.model.violation import Violation
from cp.resources.checks import absent, host_and_port, is_domain, one_of, port_in_text
from cp.resources.schema import Schema, SensitiveText

BACKEND: Final = "MeshOpenTelemetryBackend"


class BackendResourceRef(Schema, frozen=True):
    kind: str = ""
    name: str | None = None
    labels: dict[str, str] | None = None


class OpenTelemetryConf(Schema, frozen=True):
    """The fields of a collector that all policies share; each policy adds its own."""

    endpoint: SensitiveText | None = None
    """A host, perhaps with a port. Where a `backendRef` was resolved to it, it can be a URL."""

    backend_ref: BackendResourceRef | None = None


def collector(otel: OpenTelemetryConf | None, *, needs_port: bool = False) -> Iterator[Violation]:
    """The faults of the endpoint or reference of a collector."""
    if otel is None:
        yield absent("", "must be set for the type OpenTelemetry", "give it a `backendRef`")
        return
    endpoint, backend_ref = otel.endpoint, otel.backend_ref
    if endpoint and backend_ref is not None:
        yield Violation("", "`endpoint` and `backendRef` exclude each other", "keep `backendRef`")
    elif backend_ref is not None:
        yield from _reference(backend_ref)
    elif not endpoint:
        yield absent("", "does not say where to", f"give it a `backendRef` to a {BACKEND}")
    elif any(character in endpoint for character in "/?#"):
        bare = endpoint.split("://")[-1].split("/")[0]
        yield Violation("endpoint", f"must be a host with a port, not `{endpoint}`", f"write `{bare}`")
    else:
        yield from host_and_port("endpoint", endpoint) if needs_port else ()
        yield from port_in_text("endpoint", endpoint)


def _reference(backend_ref: BackendResourceRef) -> Iterator[Violation]:
    yield from one_of("backendRef.kind", backend_ref.kind, (BACKEND,))
    if not backend_ref.labels and not backend_ref.name:
        hint = f"the `name` of one, or `labels` that it has, for example `{NAME_LABEL}`"
        yield absent("backendRef", f"does not say which {BACKEND}", hint)


def endpoints_deprecated(path: str, confs: Iterable[OpenTelemetryConf | None]) -> Iterator[Violation]:
    """Warnings about endpoints that could be references. `path` is that of the list of backends."""
    for index, otel in enumerate(confs):
        if otel is not None and otel.endpoint and otel.backend_ref is None:
            hint = f"write a {BACKEND} and refer to it by `backendRef`"
            yield Violation(f"{path}[{index}].openTelemetry.endpoint", "is deprecated", hint)


@dataclass(frozen=True, slots=True)
class Url:
    """A URL in the parts that sending telemetry needs."""

    scheme: str
    host: str
    port: int | None = None
    user: str = ""
    path_and_query: str = ""

    @classmethod
    def parse(cls, text: str) -> Url | None:
        match = _URL.fullmatch(text)
        if match is None:
            return None
        port = int(match["port"]) if match["port"] else None
        return cls(match["scheme"].lower(), match["host"], port, match["user"] or "", match["path_and_query"] or "")


def is_collector_address(text: str) -> bool:
    """Whether a text is a host with a port, or a URL. A bare word is taken for a mistake."""
    url = Url.parse(text if "://" in text else f"tcp://{text}")
    if url is None:
        return False
    host = url.host.strip("[]")
    return (is_ip(host) or is_domain(host.lower())) and (url.port is not None or "." in host)


def authority(address: str) -> str:
    """The host and port of a collector's address, without the other parts of a URL."""
    url = Url.parse(address if "://" in address else f"tcp://{address}")
    if url is None:
        return address
    return url.host if url.port is None else f"{url.host}:{url.port}"


_URL = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://((?P<user>[^/?#@\s]*)@)?"
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:/?#@\s\[\]]+)(:(?P<port>[0-9]{1,9}))?(?P<path_and_query>[/?#]\S*)?"
)

"""Where telemetry goes by OpenTelemetry: to an endpoint, or to a MeshOpenTelemetryBackend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cp.model.violation import Violation
from cp.resources.checks import absent, host_and_port, is_domain, is_ip, one_of
from cp.resources.schema import Schema

_BACKEND = "MeshOpenTelemetryBackend"


class BackendResourceRef(Schema, frozen=True):
    kind: str = ""
    name: str | None = None
    labels: dict[str, str] | None = None


def collector(
    endpoint: str | None, backend_ref: BackendResourceRef | None, *, needs_port: bool = False
) -> Iterator[Violation]:
    """The faults of the two fields that say where telemetry goes."""
    if endpoint and backend_ref is not None:
        yield Violation("", "`endpoint` and `backendRef` exclude each other", "keep `backendRef`")
    elif backend_ref is not None:
        yield from one_of("backendRef.kind", backend_ref.kind, (_BACKEND,))
        if not backend_ref.labels:
            hint = f"`labels` that a {_BACKEND} has, for example `kuma.io/display-name`"
            yield absent("backendRef", f"does not say which {_BACKEND}", hint)
    elif not endpoint:
        yield absent("", "does not say where to", f"give it a `backendRef` to a {_BACKEND}")
    elif any(character in endpoint for character in "/?#"):
        bare = endpoint.split("://")[-1].split("/")[0]
        yield Violation("endpoint", f"must be a host with a port, not `{endpoint}`", f"write `{bare}`")
    elif needs_port:
        yield from host_and_port("endpoint", endpoint)


def endpoint_deprecated(path: str, endpoint: str | None, backend_ref: BackendResourceRef | None) -> Iterator[Violation]:
    if endpoint and backend_ref is None:
        hint = f"write a {_BACKEND} and refer to it by `backendRef`"
        yield Violation(f"{path}.endpoint", "is deprecated", hint)


@dataclass(frozen=True, slots=True)
class Url:
    """A URL in the parts that matter to who sends telemetry."""

    scheme: str
    host: str
    port: int | None = None
    user: str = ""
    rest: str = ""

    @classmethod
    def parse(cls, text: str) -> Url | None:
        found = _URL.fullmatch(text)
        if found is None:
            return None
        port = int(found["port"]) if found["port"] else None
        return cls(found["scheme"].lower(), found["host"], port, found["user"] or "", found["rest"] or "")


def is_place(text: str) -> bool:
    """A host with a port, or a URL. A bare word is taken for a mistake."""
    url = Url.parse(text if "://" in text else f"tcp://{text}")
    if url is None:
        return False
    host = url.host.strip("[]")
    return (is_ip(host) or is_domain(host.lower())) and (url.port is not None or "." in host)


_URL = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://((?P<user>[^/?#@\s]*)@)?"
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:/?#@\s\[\]]+)(:(?P<port>[0-9]{1,9}))?(?P<rest>[/?#]\S*)?"
)

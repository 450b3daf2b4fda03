"""What an operator leaves open on purpose: told at the start, by `/ready` and by lint, for as long as it is so.

See record 0060.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.model.hosts import is_loopback
from cp.model.violation import Finding, Severity
from cp.settings import Settings, variable

CODE: Final = "open-door"


def exposures(settings: Settings) -> Iterator[Finding]:
    """The doors of the HTTP API that are open."""
    is_reached = not is_loopback(settings.http_bind) or (settings.serves_https and not is_loopback(settings.https_bind))
    if not is_loopback(settings.http_bind):
        yield _exposure(
            f"the HTTP API is served without TLS on {settings.http_bind}, so tokens and Secrets can be read on the way",
            f"leave out {variable('http_bind')}, and call https on port {settings.https_port}",
        )
    if settings.authentication == "none":
        if is_reached:
            yield _exposure(
                "everybody who reaches the HTTP API is an administrator", f"leave out {variable('authentication')}"
            )
    elif settings.localhost_is_admin and is_reached:
        yield _exposure(
            "callers from this machine without a token are administrators, also those that a reverse proxy forwards",
            f"generate a token for yourself, and set {variable('localhost_is_admin')}=false",
        )


def _exposure(message: str, hint: str) -> Finding:
    return Finding(CODE, Severity.WARNING, None, message, hint=hint)

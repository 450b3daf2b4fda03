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
    """The doors that are open, of the HTTP API and of proxies."""
    yield from _of_api(settings)
    if not is_loopback(settings.bind):
        yield from _of_proxies(settings)


def _of_api(settings: Settings) -> Iterator[Finding]:
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


def _of_proxies(settings: Settings) -> Iterator[Finding]:
    if not settings.serves_proxies_over_tls:
        yield _exposure(
            f"proxies are served without TLS on {settings.bind}, so their tokens and keys can be read on the way",
            f"leave out {variable('ads_tls')}",
        )
    if not settings.asks_proxies_for_tokens:
        yield _exposure(
            "whoever reaches the port for proxies gets the configuration and the certificate of any proxy",
            f"leave out {variable('proxy_authentication')}",
        )


def _exposure(message: str, hint: str) -> Finding:
    return Finding(CODE, Severity.WARNING, None, message, hint=hint)

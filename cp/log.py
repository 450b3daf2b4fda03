"""How the control plane speaks of itself: structlog's set-up, and every event by name.

An event's name is what happened, its facts stand beside it. So a log can be counted and filtered, and a name is
looked up here.
"""

from __future__ import annotations

import logging
import sys
from types import MappingProxyType
from typing import Final, TextIO

import structlog
from structlog.typing import Processor

EVENTS: Final = MappingProxyType(
    {
        "access.loaded": "The file with rights changed, and its rights are in force.",
        "access.refused": "The file with rights is invalid; the rights from before stay in force.",
        "api.applied": "Resources were written over the HTTP API, all together.",
        "api.deleted": "A resource was deleted over the HTTP API.",
        "api.failed": "A request met a fault of ours; the trace is in the log, not in the answer.",
        "api.refused": "A request over the HTTP API was refused, because of its token or for want of a right.",
        "api.revealed": "A secret was shown to an administrator.",
        "api.stored": "A resource was written over the HTTP API.",
        "authority.made": "The built-in authority of a mesh was made and stored.",
        "bootstrap.not_found": "Kuma's agent asked for a Dataplane that is not there; it tries again.",
        "bootstrap.refused": "A proxy asked for its bootstrap configuration without a token that is good for it.",
        "bootstrap.served": "A proxy was given its bootstrap configuration.",
        "certificate.failed": "A proxy was not issued a certificate; it keeps what it has, and it is tried again.",
        "certificate.loaded": "The files of the servers' certificate changed, and new connections get it.",
        "certificate.unusable": "They changed, or were to be renewed, and cannot be used; the one before is kept.",
        "clusters.unanswered": "An Envoy answers no clusters: one of them keeps the others from getting ready.",
        "control_plane.hangup_ignored": "SIGHUP came, and there are no files that could be read again.",
        "control_plane.ready": "All servers listen; where, stands beside it.",
        "control_plane.rereading": "SIGHUP came: the folder of files is read again.",
        "control_plane.stopping": "A signal said that it is time to end.",
        "finding": "Something about one stored resource that its owner should know, once; all else goes on.",
        "http.no_connections": "There was no file descriptor for a connection; those who wait are taken after a pause.",
        "http.too_slow": "A client took too long to send a request, and was cut off.",
        "process.cut_short": "Everything was closed, and a thread went on computing; the process ended without it.",
        "proxy.connected": "An Envoy opened a stream.",
        "proxy.disconnected": "That stream ended.",
        "proxy.draining": "A proxy is about to end, and its addresses are no endpoints any more.",
        "proxy.refused": "A stream did not say who it is, or has no token for that; of many lines some are left out.",
        "proxy.ready": "A proxy has its first configuration and listens; its addresses are endpoints.",
        "proxy.registered": "A proxy brought its Dataplane along, which was stored.",
        "proxy.removed": "What a proxy had registered was removed, as it disconnected and did not come back.",
        "refusals.untold": "A fault of ours in telling what Envoys refuse; they are served all the same.",
        "registrations.unswept": "A fault of ours in looking for proxies that have gone; it is tried again.",
        "resources.accepted": "An Envoy took what it was sent.",
        "resources.refused": "An Envoy refused what it was sent, and said why.",
        "proxy.failed": "A fault of ours in a part of what a proxy gets; what is served instead is in `reason`.",
        "setting": "A setting of the control plane asks for something that is not enforced.",
        "signing_keys.admin_token": "A token of an administrator was made and stored, as there was none.",
        "signing_keys.made": "A key that signs tokens was made and stored, as there was none.",
        "signing_keys.no_admin_token": "There is no token of an administrator, and none can be stored.",
        "self_check.failed": "What was kept from before differs from a full computation, which is served instead.",
        "trust.changed": "A mesh trusts other authorities, or another one signs, or its callers speak TLS from now on.",
        "trust.unkept": "A fault of ours in keeping track of the authorities of meshes; it is tried again.",
        "token.issued": "A token was made. Its id is how it can be revoked; the token itself is not in the log.",
        "worker.died": "A process that served proxies ended; they come to another one, and it is replaced.",
        "worker.link_broken": "A worker and the process that started it could not read each other; it is replaced.",
        "worker.ready": "A process serves proxies.",
        "worker.silent": "A process that served proxies hangs; it is ended, and its proxies come to another one.",
        "world.changed": "Resources changed, and proxies were served what follows from it.",
        "world.loaded": "The store was read; from now on proxies are served.",
    }
)
"""What each event means. A name that is logged and not here fails a test."""

_OTHERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "grpc", "asyncio", "watchfiles")


def configure(level: str, format_: str, stream: TextIO | None = None) -> None:
    """Set up logging for the process: our events and what libraries log, in one form and to one place."""
    out = stream or sys.stderr
    as_json = format_ == "json" or (format_ == "auto" and not out.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(as_json=as_json))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    for name in _OTHERS:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _formatter(*, as_json: bool) -> logging.Formatter:
    """Traces name no values of variables: there may be a key among them."""
    last: list[Processor]
    if as_json:
        traces = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last = [structlog.processors.ExceptionRenderer(traces), structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )

"""How the control plane speaks of itself: structlog's set-up, and every event by name.

An event's name is what happened, its facts stand beside it. So a log can be counted and filtered, and a name is
looked up here.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO, TextIOWrapper
from logging.handlers import WatchedFileHandler
from types import MappingProxyType
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor

from cp.model.wording import printable

EVENTS: Final = MappingProxyType(
    {
        "access.loaded": "The file with rights changed, and its rights are in force.",
        "access.refused": "The file with rights is invalid; the rights from before stay in force.",
        "api.applied": "Resources were written over the HTTP API, all together.",
        "api.deleted": "A resource was deleted over the HTTP API.",
        "api.failed": "A request met a fault of ours; the trace is in the log, not in the answer.",
        "api.preflight_failed": "The Envoy that is shown writes first could not be asked, so a write was refused.",
        "api.preflight_refused": "A write was refused because an Envoy refuses what it comes to.",
        "access.tolerated": "A write was let in by a right that names no kinds, as KOGUMA_ACCESS_UNNAMED is `warn`.",
        "access.unnamed": "A right names no kinds, and covers less than before kinds with power had to be named.",
        "api.refused": "A request over the HTTP API was refused, because of its token or for want of a right.",
        "api.revealed": "A secret was shown to an administrator.",
        "api.rolled_back": "Resources were brought back to how they were, over the HTTP API, all together.",
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
        "envoy.link_ended": "The token of an agent is not good any longer, so the link to its Envoy was ended.",
        "envoy.log_level": "An operator has set the level of an Envoy's log for a time, by way of its agent.",
        "finding": "Something about one stored resource that its owner should know, once; all else goes on.",
        "findings.more": "More findings came with a change than are logged; lint has all of them.",
        "http.no_connections": "There was no file descriptor for a connection; those who wait are taken after a pause.",
        "http.too_slow": "A client took too long to send a request, and was cut off.",
        "mesh.caught_up": "A mesh of which `mesh.late` was logged has been given its changes.",
        "mesh.late": "The proxies of a mesh have waited for a change for too long, because it takes long to compute.",
        "monitor.failed": "A fault of ours in counting proxies or findings for metrics; it is tried again.",
        "monitor.over_budget": "Counting findings for metrics takes too long or too much memory: they are missing.",
        "preflight.available": "Preflight is possible again, after `preflight.unavailable`.",
        "preflight.unavailable": "No write can be shown to an Envoy first: there is none, or no sandbox for it.",
        "process.cut_short": "Everything was closed, and a thread went on computing; the process ended without it.",
        "history.kept": "What is too old in the history cannot be forgotten; it is tried again.",
        "instance.leads": "This control plane does what one of those that share the store has to do.",
        "instance.leads_no_longer": "It was silent for too long, and another one does that now.",
        "instance.unreported": "This control plane cannot say in the store that it is there, or see who is; told once.",
        "proxy.connected": "An Envoy opened a stream.",
        "proxy.disconnected": "That stream ended.",
        "proxy.draining": "A proxy is about to end, and its addresses are no endpoints any more.",
        "proxy.refused": "A stream did not say who it is, or has no token for that; of many lines some are left out.",
        "proxy.ready": "A proxy has its first configuration and listens; its addresses are endpoints.",
        "proxy.registered": "A proxy brought its Dataplane along, which was stored.",
        "proxy.removed": "What a proxy had registered was removed, as it disconnected and did not come back.",
        "refusals.untold": "A fault of ours in telling what Envoys refuse; they are served all the same.",
        "registrations.unswept": "Proxies that have gone could not be looked for; it is tried again, and told once.",
        "rollout.begun": "Resources were handed in to be rolled out: some proxies are served them first.",
        "rollout.commanded": "A rollout was paused, continued or aborted over the HTTP API.",
        "rollout.ended": "A rollout is done, and stored for all, or its proxies went back to what is stored.",
        "rollout.step": "More proxies are served what a rollout proposes.",
        "rollout.unkept": "A fault of ours in looking after a rollout; it stays where it is, and is tried again.",
        "resources.accepted": "An Envoy took what it was sent.",
        "resources.refused": "An Envoy refused what it was sent, and said why.",
        "proxy.over_limit": "Documents exceed a limit, and a part of what a proxy gets is left out; see `reason`.",
        "proxy.failed": "A fault of ours in a part of what a proxy gets; what is served instead is in `reason`.",
        "setting": "A setting of the control plane asks for something that is not enforced.",
        "signing_keys.admin_token": "A token of an administrator was made and stored, as there was none.",
        "signing_keys.made": "A key that signs tokens was made and stored, as there was none.",
        "signing_keys.no_admin_token": "There is no token of an administrator, and none can be stored.",
        "self_check.failed": "What was kept from before differs from a full computation, which is served instead.",
        "store.reachable": "The database of the store answers again, and what was missed meanwhile is read.",
        "store.refuses_writes": "The store can be read and takes no writes, such as because its disk is full.",
        "store.takes_writes": "The store that refused writes has taken one.",
        "store.unreachable": "The store does not answer or cannot be followed; what is known is served meanwhile.",
        "store.went_back": "The database knows less than before, as after a restore, and everything is read anew.",
        "trust.changed": "A mesh trusts other authorities, or another one signs, or its callers speak TLS from now on.",
        "trust.waits": "A move of a mesh waits for proxies that have not taken what they were sent.",
        "trust.unkept": "A fault of ours in keeping track of the authorities of meshes; it is tried again.",
        "traces.dropped": "More spans wait for the collector of traces than are kept; newer ones are missing.",
        "traces.sent_again": "The collector of traces takes them again; those from meanwhile are missing.",
        "traces.unsent": "The collector does not take traces; nothing else is worse for it.",
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

_MODE: Final = 0o640
_OF_LINES: Final = frozenset({"stack", "exception"})
"""What has several lines: where something happened, and not what somebody sent."""

_OTHERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "grpc", "asyncio", "watchfiles")


def configure(level: str, format_: str, stream: TextIO | None = None, file: str = "") -> None:
    """Set up logging for the process: our events and what libraries log, in one form and to one place.

    That is the file, if one is named: it is begun anew when it was moved away. Raises `OSError` if it cannot be used.
    """
    out = stream or sys.stderr
    as_json = format_ == "json" or (format_ == "auto" and (file != "" or not out.isatty()))
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = LogFile(file) if file else logging.StreamHandler(out)
    handler.setFormatter(_formatter(as_json=as_json, colours=not file and _takes_colours(out)))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    for name in _OTHERS:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


@contextmanager
def faults_only() -> Iterator[None]:
    """For a command that does in passing what a control plane logs: of that only faults are told, beside its output."""
    before = structlog.get_config()
    faults = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=faults, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        yield
    finally:
        structlog.configure(**before)


class LogFile(WatchedFileHandler):
    """A file that nobody else may read, and that processes add whole lines to. Moved away, it is begun anew.

    While it cannot be written, its lines go to standard error, and it is tried again with each: what somebody does is
    not to fail because of what is said of it.
    """

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        self._fault = ""

    def emit(self, record: logging.LogRecord) -> None:
        before, self._fault = self._fault, ""
        try:
            super().emit(record)
        except (OSError, ValueError):  # it cannot be begun anew, or not be closed
            self.handleError(record)
        if self._fault:
            self._tell(record, is_new=self._fault != before)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if isinstance(error, OSError):
            self._fault = str(error)
        else:
            super().handleError(record)

    def _tell(self, record: logging.LogRecord, *, is_new: bool) -> None:
        with suppress(OSError, ValueError, AttributeError):  # nor is there anything to do where this fails
            if is_new:
                sys.stderr.write(f"The log cannot be written: {self._fault}. Its lines come here meanwhile.\n")
            sys.stderr.write(self.format(record) + self.terminator)
            sys.stderr.flush()

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        return TextIOWrapper(FileIO(descriptor, "a"), encoding="utf-8", errors="backslashreplace", write_through=True)


def _without_controls(_logger: Any, _name: str, event: EventDict) -> EventDict:
    """What strangers send, such as the path of a request, without what a terminal obeys. JSON escapes it by itself."""
    return {
        key: printable(value) if isinstance(value, str) and key not in _OF_LINES else value
        for key, value in event.items()
    }


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _takes_colours(out: TextIO) -> bool:
    """Whether it is a terminal whose user wants colours (https://no-color.org)."""
    return out.isatty() and not os.environ.get("NO_COLOR")  # noqa: TID251  # a word of all programs


def _formatter(*, as_json: bool, colours: bool) -> logging.Formatter:
    """Traces name no values of variables: there may be a key among them."""
    last: list[Processor]
    if as_json:
        traces = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last = [structlog.processors.ExceptionRenderer(traces), structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        last = [_without_controls, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )

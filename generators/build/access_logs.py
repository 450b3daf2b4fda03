"""Access logs of a listener, and the routes for which each is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from envoy.config.accesslog.v3.accesslog_pb2 import AccessLog
from envoy.extensions.access_loggers.filters.cel.v3.cel_pb2 import ExpressionFilter

from generators.envoy.edit import pack

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from generators.drafts import ListenerDraft


def access_log(name: str, config: Message) -> AccessLog:
    return AccessLog(name=name, typed_config=pack(config))


def add_logs(draft: ListenerDraft, logs: Iterable[AccessLog]) -> None:
    for kind in (draft.manager, draft.tcp):
        if kind is not None:
            kind.access_log.extend(logs)


def except_routes(draft: ListenerDraft, routes: Iterable[str]) -> None:
    """Make the logs that the draft already has skip requests that take one of these routes."""
    if draft.manager is not None:
        other_routes = f"!({_any_of(routes)})"
        for log in draft.manager.access_log:
            _filter(log, other_routes)


def of_routes(log: AccessLog, routes: Iterable[str]) -> AccessLog:
    """Restrict a log to requests that take one of these routes."""
    _filter(log, _any_of(routes))
    return log


def _filter(log: AccessLog, expression: str) -> None:
    log.filter.extension_filter.name = "envoy.access_loggers.extension_filters.cel"
    log.filter.extension_filter.typed_config.CopyFrom(pack(ExpressionFilter(expression=expression)))


def _any_of(routes: Iterable[str]) -> str:
    return " || ".join(f"xds.route_name == '{_quoted(name)}'" for name in sorted(set(routes)))


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")

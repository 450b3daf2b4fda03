"""Access logs of a listener, and the routes and clients for which each is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from envoy.config.accesslog.v3.accesslog_pb2 import AccessLog, MetadataFilter
from envoy.extensions.access_loggers.filters.cel.v3.cel_pb2 import ExpressionFilter

from generators.envoy import names
from generators.envoy.edit import pack
from generators.envoy.permissions import OBSERVED, Client, http_observer, network_observer, observed
from generators.proxy import Inbound

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from generators.drafts import ListenerDraft
    from generators.proxy import Route

_LOGGED: Final = "access_log_"


def access_log(name: str, config: Message) -> AccessLog:
    return AccessLog(name=name, typed_config=pack(config))


def add_logs(draft: ListenerDraft, logs: Iterable[AccessLog]) -> None:
    for kind in (draft.manager, draft.tcp):
        if kind is not None:
            kind.access_log.extend(logs)


def except_routes(draft: ListenerDraft, routes: Iterable[Route]) -> None:
    """Make the logs that the draft already has skip requests that take one of these routes."""
    if draft.manager is not None:
        other_routes = f"!({_any_of(routes)})"
        for log in draft.manager.access_log:
            _filter(log, other_routes)


def of_routes(log: AccessLog, routes: Collection[Route], left_out: Iterable[Route]) -> AccessLog:
    """Restrict a log to requests that take one of these routes, and none that is left out."""
    single = [route for route in routes if not route.is_every]
    many = [route for route in routes if route.is_every]
    endings = tuple(route.name for route in many)
    within = [route for route in left_out if not route.is_every and route.name.endswith(endings)]
    of_many = f"({_any_of(many)}) && !({_any_of(within)})" if many and within else _any_of(many)
    _filter(log, " || ".join(filter(None, (of_many, _any_of(single)))))
    return log


def of_clients(draft: ListenerDraft, logs: Sequence[tuple[Client, Iterable[AccessLog]]]) -> None:
    """Add logs for some clients, who are then not in the logs that the draft already has: of several the first counts.

    Of the URIs of a certificate, expressions know the first alone. A filter that judges permissions knows them all, and
    notes which of its rules a client meets (record 0062).
    """
    is_http = draft.manager is not None
    rbac = names.HTTP_RBAC if is_http else names.NETWORK_RBAC
    for kind in (draft.manager, draft.tcp):
        for log in kind.access_log if kind is not None else ():
            log.filter.metadata_filter.CopyFrom(_noted(rbac, None))
    clients = [client for client, _ in logs]
    mesh = draft.site.mesh if isinstance(draft.site, Inbound) else ""
    if is_http:
        draft.http_observers.append(http_observer(clients, mesh, _LOGGED))
    else:
        draft.network_observers.append(network_observer(clients, mesh, _LOGGED))
    for place, (_, client_logs) in enumerate(logs):
        add_logs(draft, (_of_client(log, _noted(rbac, observed(place))) for log in client_logs))


def _of_client(log: AccessLog, noted: MetadataFilter) -> AccessLog:
    log.filter.metadata_filter.CopyFrom(noted)
    return log


def _noted(rbac: str, note: str | None) -> MetadataFilter:
    """Takes clients of whom an observer noted something, or, with None, those of whom it noted nothing."""
    noted = MetadataFilter()
    noted.matcher.filter = rbac
    noted.matcher.path.add(key=_LOGGED + OBSERVED)
    noted.match_if_key_not_found.value = note is None
    if note is None:
        noted.matcher.value.present_match = False
    else:
        noted.matcher.value.string_match.exact = note
    return noted


def _filter(log: AccessLog, expression: str) -> None:
    log.filter.extension_filter.name = "envoy.access_loggers.extension_filters.cel"
    log.filter.extension_filter.typed_config.CopyFrom(pack(ExpressionFilter(expression=expression)))


def _any_of(routes: Iterable[Route]) -> str:
    return " || ".join(sorted({_test(route) for route in routes}))


def _test(route: Route) -> str:
    name = f"'{_quoted(route.name)}'"
    return f"xds.route_name.endsWith({name})" if route.is_every else f"xds.route_name == {name}"


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")

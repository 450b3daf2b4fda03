"""The listener at which a proxy's metrics are collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.extensions.filters.http.lua.v3.lua_pb2 import Lua
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from cp.model.hosts import is_ip
from cp.policies import MetricsPage
from cp.policies.mesh_metric.filtering import program
from cp.policies.mesh_metric.schema import Conf, MetricApplication, MetricBackend, MetricPrometheus
from generators.drafts import SidecarDraft
from generators.envoy import names
from generators.envoy.edit import pack, set_address

_LUA: Final = "envoy.filters.http.lua"
_PORT: Final = 5670
_PATH: Final = "/metrics"
_LARGEST: Final = 64 * 1024 * 1024
"""The largest page of metrics of a proxy and its applications, in bytes."""


def endpoint(conf: Conf, backend: MetricBackend, draft: SidecarDraft) -> None:
    """Add the resources of a backend. A backend with TLS gets none: a listener without TLS would expose its metrics."""
    if (prometheus := _served(backend)) is not None:
        _listen(conf, prometheus, draft)


def pages(conf: Conf) -> Iterator[MetricsPage]:
    """Where the listeners are that `endpoint` makes: of several at one port the first."""
    ports: set[int] = set()
    for prometheus in filter(None, map(_served, conf.backends or ())):
        port = prometheus.port or _PORT
        if port not in ports:
            ports.add(port)
            yield MetricsPage(port, prometheus.path or _PATH, prometheus.client_id or "")


def _served(backend: MetricBackend) -> MetricPrometheus | None:
    prometheus = backend.prometheus if backend.type == "Prometheus" else None
    tls = None if prometheus is None else prometheus.tls
    return prometheus if tls is None or tls.mode in {None, "Disabled"} else None


def _listen(conf: Conf, prometheus: MetricPrometheus, draft: SidecarDraft) -> None:
    address, port = draft.site.address, prometheus.port or _PORT
    name = names.metrics_listener(address, port)
    if any(isinstance(resource, Listener) and resource.name == name for resource in draft.resources):
        return
    listener = Listener(name=name)
    listener.per_connection_buffer_limit_bytes.value = _LARGEST
    set_address(listener.address, address, port)
    manager = HttpConnectionManager(stat_prefix="metrics")
    manager.route_config.name = name
    manager.route_config.virtual_hosts.append(_host(conf, prometheus.path or _PATH))
    applications = [_asked(application, draft) for application in conf.applications or ()]
    profiles = conf.sidecar.profiles if conf.sidecar is not None else None
    if text := program(profiles, applications, draft.problems):
        lua = Lua()
        lua.default_source_code.inline_string = text
        manager.http_filters.add(name=_LUA).typed_config.CopyFrom(pack(lua))
    manager.http_filters.add(name=names.ROUTER).typed_config.CopyFrom(pack(Router()))
    filters = listener.filter_chains.add().filters
    filters.add(name=names.CONNECTION_MANAGER).typed_config.CopyFrom(pack(manager))
    draft.resources.append(listener)


def _host(conf: Conf, path: str) -> VirtualHost:
    """One path leads to one page of the admin interface. The query of a request is put where it means nothing."""
    host = VirtualHost(name="metrics", domains=["*"])
    route = host.routes.add()
    route.match.path = path
    route.match.headers.add(name=":method").string_match.exact = "GET"
    route.route.cluster = names.ADMIN
    unused = conf.sidecar is not None and conf.sidecar.include_unused
    route.route.prefix_rewrite = f"/stats/prometheus?{'' if unused else 'usedonly&'}_="
    return host


def _asked(application: MetricApplication, draft: SidecarDraft) -> tuple[str, str, str]:
    """The cluster of an application, made where it is not there yet, and what to ask it for."""
    address = application.address or names.LOOPBACK
    name = names.application_cluster(address, application.port)
    if not any(isinstance(resource, Cluster) and resource.name == name for resource in draft.resources):
        kind = Cluster.STATIC if is_ip(address) else Cluster.STRICT_DNS
        cluster = Cluster(name=name, type=kind, alt_stat_name=names.statistic(name))
        cluster.load_assignment.cluster_name = name
        endpoint = cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint
        set_address(endpoint.address, address, application.port)
        draft.resources.append(cluster)
    return name, application.path or _PATH, f"{address}:{application.port}"

"""MeshProxyPatch: changes to what a proxy is configured with, in Envoy's own terms, after all other policies.

appendModifications                         in order, of all policies together; each one of these:
appendModifications[].cluster               a Cluster
appendModifications[].cluster.operation     Add, Remove or Patch
appendModifications[].cluster.match         which: those of which all of this is true
appendModifications[].cluster.match.origin  what they were made for: inbound, outbound, ...
appendModifications[].cluster.match.name    Cluster.name
appendModifications[].cluster.value         a Cluster, as YAML; of a Patch merged over what is there
appendModifications[].cluster.jsonPatches   of a Patch, in place of `value`: RFC 6902
appendModifications[].cluster.jsonPatches[].op
appendModifications[].cluster.jsonPatches[].path
appendModifications[].cluster.jsonPatches[].value
appendModifications[].cluster.jsonPatches[].from
appendModifications[].listener              a Listener
appendModifications[].listener.operation    Add, Remove or Patch
appendModifications[].listener.match
appendModifications[].listener.match.origin
appendModifications[].listener.match.name   Listener.name
appendModifications[].listener.match.tags   those of the inbound, or of a listener of the gateway
appendModifications[].listener.value        a Listener, as YAML
appendModifications[].listener.jsonPatches
appendModifications[].listener.jsonPatches[].op
appendModifications[].listener.jsonPatches[].path
appendModifications[].listener.jsonPatches[].value
appendModifications[].listener.jsonPatches[].from
appendModifications[].networkFilter         FilterChain.filters
appendModifications[].networkFilter.operation           AddFirst, AddLast, AddBefore, AddAfter, Remove or Patch
appendModifications[].networkFilter.match
appendModifications[].networkFilter.match.origin
appendModifications[].networkFilter.match.name          Filter.name
appendModifications[].networkFilter.match.listenerName  Listener.name
appendModifications[].networkFilter.match.listenerTags
appendModifications[].networkFilter.value               a Filter, as YAML
appendModifications[].networkFilter.jsonPatches
appendModifications[].networkFilter.jsonPatches[].op
appendModifications[].networkFilter.jsonPatches[].path
appendModifications[].networkFilter.jsonPatches[].value
appendModifications[].networkFilter.jsonPatches[].from
appendModifications[].httpFilter            HttpConnectionManager.http_filters
appendModifications[].httpFilter.operation              as of networkFilter
appendModifications[].httpFilter.match
appendModifications[].httpFilter.match.origin
appendModifications[].httpFilter.match.name             HttpFilter.name
appendModifications[].httpFilter.match.listenerName     Listener.name
appendModifications[].httpFilter.match.listenerTags
appendModifications[].httpFilter.value                  an HttpFilter, as YAML
appendModifications[].httpFilter.jsonPatches
appendModifications[].httpFilter.jsonPatches[].op
appendModifications[].httpFilter.jsonPatches[].path
appendModifications[].httpFilter.jsonPatches[].value
appendModifications[].httpFilter.jsonPatches[].from
appendModifications[].virtualHost           RouteConfiguration.virtual_hosts
appendModifications[].virtualHost.operation  Add, Remove or Patch
appendModifications[].virtualHost.match
appendModifications[].virtualHost.match.origin
appendModifications[].virtualHost.match.name                    VirtualHost.name
appendModifications[].virtualHost.match.routeConfigurationName  RouteConfiguration.name
appendModifications[].virtualHost.value     a VirtualHost, as YAML
appendModifications[].virtualHost.jsonPatches
appendModifications[].virtualHost.jsonPatches[].op
appendModifications[].virtualHost.jsonPatches[].path
appendModifications[].virtualHost.jsonPatches[].value
appendModifications[].virtualHost.jsonPatches[].from

Of a builtin gateway, a port with all of its chains is one Listener, and the origin is `gateway`. The tags of a chain
for one server name are those of its own listener.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cp.model.violation import Violation
from cp.policies import Policy
from cp.policies.mesh_proxy_patch.changes import Changes
from cp.policies.mesh_proxy_patch.proxy_template import PROXY_TEMPLATE
from cp.policies.mesh_proxy_patch.schema import Conf, Spec
from cp.policies.mesh_proxy_patch.validation import TARGETS, validate
from cp.resources import deprecated
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape

if TYPE_CHECKING:
    from generators.drafts import Built


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    return deprecated.top_kind(spec)


class MeshProxyPatch(Policy[Conf]):
    kind = Kind(
        name="MeshProxyPatch",
        short="mpp",
        plural="meshproxypatches",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        policy=PolicyShape(single=True),
    )
    legacy_kinds = (PROXY_TEMPLATE,)
    order = 9999
    conf = Conf
    targets = TARGETS
    change_list = "appendModifications"
    is_for_grpc_clients = True

    def finish(self, conf: Conf, built: Built) -> None:
        """Makes each modification by itself. One that cannot be made changes nothing, and the others are made."""
        changes = Changes(built)
        for index, modification in enumerate(conf.append_modifications or ()):
            path, attempt = f"appendModifications[{index}]", changes.make(modification)
            built.problems += [(path, reason) for reason in attempt.problems]
            if attempt.fits:
                built.used.append(path)
        changes.close()


POLICY = MeshProxyPatch()

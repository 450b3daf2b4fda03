"""RBAC filters: who may call, by the identity that a client's certificate shows and the server name it asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.config.rbac.v3.rbac_pb2 import RBAC, Permission, Policy, Principal
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac

from generators.envoy import names
from generators.envoy.edit import pack

if TYPE_CHECKING:
    from generators.proxy import Tags

Client: TypeAlias = Mapping[str, Any]
"""The conditions on clients: `tags` and `not`, `spiffeID`, `sni`. Without any, all clients meet them."""

SERVICE_TAG = "kuma.io/service"


class PolicyTable:
    """The policies of one RBAC, each under the name that Envoy's logs show when it decides."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}

    def __bool__(self) -> bool:
        return bool(self.policies)

    def add(self, name: str, client: Client, mesh: str) -> None:
        """Enter clients of a mesh. Those of one name who ask for one server name are one policy."""
        sni = (client.get("sni") or {}).get("value", "")
        policy = self.policies.setdefault(f"{name} {sni}" if sni else name, Policy())
        if not policy.permissions:
            policy.permissions.append(_permission(sni))
        policy.principals.append(_principal(client, mesh))


def service_uri(mesh: str, service: str) -> str:
    """The URI by which the proxies of a service are known."""
    return f"spiffe://{mesh}/{service}"


def tag_uri(name: str, value: str) -> str:
    """The URI by which a proxy that carries a tag is known."""
    return f"kuma://{name}/{value}"


def http_filters(permissions: Iterable[RBAC], shadow: RBAC | None) -> Iterator[HttpFilter]:
    """One filter for each table; the last of them also counts and logs what the shadow would have denied."""
    *earlier, last = permissions
    for rules in earlier:
        yield HttpFilter(name=names.HTTP_RBAC, typed_config=pack(http_rbac.RBAC(rules=rules)))
    yield HttpFilter(name=names.HTTP_RBAC, typed_config=pack(http_rbac.RBAC(rules=last, shadow_rules=shadow)))


def network_filters(permissions: Iterable[RBAC], shadow: RBAC | None, listener: str) -> Iterator[Filter]:
    """The same for connections."""
    prefix = f"{names.statistic(listener)}."
    *earlier, last = permissions
    for rules in earlier:
        yield Filter(name=names.NETWORK_RBAC, typed_config=pack(network_rbac.RBAC(rules=rules, stat_prefix=prefix)))
    rbac = network_rbac.RBAC(rules=last, shadow_rules=shadow, stat_prefix=prefix)
    yield Filter(name=names.NETWORK_RBAC, typed_config=pack(rbac))


def _permission(sni: str) -> Permission:
    permission = Permission()
    if sni:
        permission.requested_server_name.exact = sni
    else:
        permission.any = True
    return permission


def _principal(client: Client, mesh: str) -> Principal:
    """All conditions on the identity of a client."""
    conditions = [*_conditions(client, mesh)]
    if len(conditions) == 1:
        return conditions[0]
    principal = Principal()
    if conditions:
        principal.and_ids.ids.extend(conditions)
    else:
        principal.any = True
    return principal


def _conditions(client: Client, mesh: str) -> Iterator[Principal]:
    tags: Tags = tuple(sorted((client.get("tags") or {}).items()))
    yield from (_with_uri(exact=_uri(mesh, *tag)) for tag in tags)
    for name, value in sorted(client.get("not") or ()):
        yield Principal(not_id=_with_uri(exact=_uri(mesh, name, value)))
    if (spiffe := client.get("spiffeID")) is not None:
        yield _with_uri(**{"prefix" if spiffe.get("type") == "Prefix" else "exact": spiffe["value"]})


def _uri(mesh: str, name: str, value: str) -> str:
    return service_uri(mesh, value) if name == SERVICE_TAG else tag_uri(name, value)


def _with_uri(**matcher: str) -> Principal:
    """Whoever has such a URI in a certificate that was verified."""
    principal = Principal()
    for kind, value in matcher.items():
        setattr(principal.authenticated.principal_name, kind, value)
    return principal

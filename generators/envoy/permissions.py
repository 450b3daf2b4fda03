"""RBAC filters: who may call, by the identity that a client's certificate shows and the server name it asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple, TypeAlias

from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.config.rbac.v3.rbac_pb2 import RBAC, Permission, Policy, Principal
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac

from generators.envoy import names
from generators.envoy.edit import pack

Client: TypeAlias = Mapping[str, Any]
"""The conditions on clients: `tags` and `not`, `spiffeID`, `sni`. Without any, all clients meet them."""

SERVICE_TAG = "kuma.io/service"

_SEVERAL_DOMAINS: Final = "names in several trust domains"


class UriCondition(NamedTuple):
    """A condition on the URIs of a certificate: that one of them is this, or begins with it; or that none does."""

    value: str
    is_prefix: bool = False
    is_not: bool = False

    def holds(self, uris: Iterable[str]) -> bool:
        has = any(uri.startswith(self.value) if self.is_prefix else uri == self.value for uri in uris)
        return has is not self.is_not


class PolicyTable:
    """The policies of one RBAC, each under the name that Envoy's logs show when it decides."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}

    def __bool__(self) -> bool:
        return bool(self.policies)

    def add(self, name: str, client: Client, mesh: str, *, unless: Iterable[Client] = ()) -> None:
        """Enter clients of a mesh, unless they meet other conditions.

        Those of one name who ask for one server name are one policy.
        """
        sni = server_name_of(client)
        policy = self.policies.setdefault(f"{name} {sni}" if sni else name, Policy())
        if not policy.permissions:
            policy.permissions.append(_permission(sni))
        policy.principals.append(_principal(client, mesh, unless))

    def add_names_of_several(self, prefixes: Iterable[str]) -> None:
        """Enter clients whose certificate has URIs with two of these prefixes."""
        for pair in combinations(sorted(prefixes), 2):
            policy = self.policies.setdefault(_SEVERAL_DOMAINS, Policy(permissions=[_permission("")]))
            policy.principals.append(_all([_with_uri(UriCondition(prefix, is_prefix=True)) for prefix in pair]))


def uri_conditions(client: Client, mesh: str) -> Iterator[UriCondition]:
    """What has to hold of the certificate of a client of a mesh."""
    for tag in sorted((client.get("tags") or {}).items()):
        yield UriCondition(_uri(mesh, *tag))
    for name, value in sorted(client.get("not") or ()):
        yield UriCondition(_uri(mesh, name, value), is_not=True)
    if (spiffe := client.get("spiffeID")) is not None:
        yield UriCondition(spiffe["value"], is_prefix=spiffe.get("type") == "Prefix")


def server_name_of(client: Client) -> str:
    """The server name for which a client has to ask; empty: any."""
    name: str = (client.get("sni") or {}).get("value", "")
    return name


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


def _principal(client: Client, mesh: str, unless: Iterable[Client]) -> Principal:
    """All conditions on the identity of a client, and none of the others."""
    conditions = [_with_uri(condition) for condition in uri_conditions(client, mesh)]
    exceptions = (_all([_with_uri(condition) for condition in uri_conditions(other, mesh)]) for other in unless)
    return _all([*conditions, *(Principal(not_id=exception) for exception in exceptions)])


def _all(principals: Sequence[Principal]) -> Principal:
    if len(principals) == 1:
        return principals[0]
    principal = Principal()
    if principals:
        principal.and_ids.ids.extend(principals)
    else:
        principal.any = True
    return principal


def _uri(mesh: str, name: str, value: str) -> str:
    return service_uri(mesh, value) if name == SERVICE_TAG else tag_uri(name, value)


def _with_uri(condition: UriCondition) -> Principal:
    """Whoever has such a URI in a certificate that was verified."""
    principal = Principal()
    name = principal.authenticated.principal_name
    if condition.is_prefix:
        name.prefix = condition.value
    else:
        name.exact = condition.value
    return Principal(not_id=principal) if condition.is_not else principal

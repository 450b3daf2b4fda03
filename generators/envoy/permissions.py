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

OBSERVED: Final = "shadow_effective_policy_id"
"""Behind its prefix, the name under which an observer notes a client in the metadata of its filter."""

_DIGITS: Final = 6
_SEVERAL_DOMAINS: Final = "names in several trust domains"
_SEVERAL_NAMES: Final = "a name that reads like several"


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

    def add_names_of_several(self, prefixes: Sequence[str]) -> None:
        """Enter clients whose certificate has URIs with two of these prefixes, or one that reads like several.

        Where clients are told apart by all their URIs in one text, there are commas between them (record 0062).
        """
        if len(prefixes) > 1:
            policy = self.policies.setdefault(_SEVERAL_NAMES, Policy(permissions=[_permission("")]))
            with_comma = policy.principals.add()
            with_comma.authenticated.principal_name.contains = ","
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


def http_observer(clients: Iterable[Client], mesh: str, prefix: str) -> HttpFilter:
    """A filter that lets everybody in, and notes in the metadata of a request which clients the caller belongs to."""
    rbac = http_rbac.RBAC(shadow_rules=_in_order(clients, mesh), shadow_rules_stat_prefix=prefix)
    return HttpFilter(name=names.HTTP_RBAC, typed_config=pack(rbac))


def network_observer(clients: Iterable[Client], mesh: str, prefix: str) -> Filter:
    """The same for connections, when the first byte comes."""
    rbac = network_rbac.RBAC(shadow_rules=_in_order(clients, mesh), shadow_rules_stat_prefix=prefix, stat_prefix=prefix)
    return Filter(name=names.NETWORK_RBAC, typed_config=pack(rbac))


def observed(place: int) -> str:
    """What an observer notes of a client: the place of the first conditions that it meets."""
    return f"{place:0{_DIGITS}}"


def _in_order(clients: Iterable[Client], mesh: str) -> RBAC:
    """Of several policies that fit Envoy takes the one whose name comes first in the alphabet."""
    rules = RBAC(action=RBAC.LOG)
    for place, client in enumerate(clients):
        rules.policies[observed(place)].permissions.append(_permission(server_name_of(client)))
        rules.policies[observed(place)].principals.append(_principal(client, mesh, ()))
    return rules


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

"""Who may call an inbound, by what MeshTrafficPermissions say (Kuma 2.14, MeshTrafficPermission).

Over mTLS nobody may call who is not allowed to. `deny` of any policy goes before whatever others allow. Items of `from`
are about tags, and of several for one client the strongest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.oracle.matching import Item, carries, has_type, selects, strength, top
from tests.oracle.reading import Data, Documents, Resource

KIND: Final = "MeshTrafficPermission"
_SERVICE: Final = "kuma.io/service"


@dataclass(frozen=True)
class Caller:
    """Who calls: the tags of its proxy, and the server name for which it asks."""

    tags: Mapping[str, str]
    mesh: str = "default"
    server_name: str = ""

    @property
    def spiffe_id(self) -> str:
        return f"spiffe://{self.mesh}/{self.tags[_SERVICE]}"


def becomes_of(documents: Documents, server: Resource, inbound: Data, caller: Caller) -> str:
    """`refused`, `let in`, or `logged`: let in although there is a word against it."""
    policies = [policy for policy in documents.of(KIND) if is_for(documents, policy, server, inbound)]
    lists = [rule["default"] for policy in policies for rule in policy.items("rules")]
    if any(_names(conf.get("deny"), caller) for conf in lists):
        return "refused"
    action = _action(policies, caller)
    is_logged = action == "AllowWithShadowDeny" or any(
        _names(conf.get("allowWithShadowDeny"), caller) for conf in lists
    )
    is_allowed = is_logged or action == "Allow" or any(_names(conf.get("allow"), caller) for conf in lists)
    if not is_allowed:
        return "refused"
    return "logged" if is_logged else "let in"


def reaches(documents: Documents, clients: Sequence[Mapping[str, str]], server: Resource, inbound: Data) -> bool:
    """Whether somebody with any of these tags is told of an inbound (redirect traffic, Which services have an address).

    Who is let in by another name than by tags is not known beforehand.
    """
    policies = [policy for policy in documents.of(KIND) if is_for(documents, policy, server, inbound)]
    actions = {_action(policies, Caller(tags)) for tags in clients}
    return any(policy.items("rules") for policy in policies) or not actions.isdisjoint({"Allow", "AllowWithShadowDeny"})


def is_for(documents: Documents, policy: Resource, server: Resource, inbound: Data) -> bool:
    """Whether a policy selects a proxy, and this inbound of it."""
    target = top(policy)
    if not selects(documents, policy, server):
        return False
    tags = inbound.get("tags") or {}
    if target["kind"] in {"Mesh", "MeshSubset"}:
        return has_type(server, target.get("proxyTypes")) and carries(tags, target.get("tags") or {})
    if target["kind"] in {"MeshService", "MeshServiceSubset"}:
        return carries(tags, {_SERVICE: target.get("name"), **(target.get("tags") or {})})
    section = target.get("sectionName")
    return not section or section in {inbound.get("name"), str(inbound["port"])}


def _action(policies: Sequence[Resource], caller: Caller) -> str:
    """What the strongest item says that is for this client; nothing if none is."""
    items = [
        Item(policy, index, item["targetRef"], item["default"])
        for policy in policies
        for index, item in enumerate(policy.items("from"))
    ]
    items.sort(key=lambda item: strength(item, {"kind": "Mesh"}))
    actions = [item.conf["action"] for item in items if carries(caller.tags, _tags(item.target))]
    return actions[-1] if actions else ""


def _tags(target: Data) -> Mapping[str, str | None]:
    name = {_SERVICE: target["name"]} if target["kind"] in {"MeshService", "MeshServiceSubset"} else {}
    return {**name, **(target.get("tags") or {})}


def _names(matches: Any, caller: Caller) -> bool:
    return any(all(meets(match, caller)) for match in matches or [])


def meets(match: Data, caller: Caller) -> Iterator[bool]:
    """Both conditions have to be met where there are two."""
    if spiffe := match.get("spiffeID"):
        is_prefix = spiffe["type"] == "Prefix"
        yield caller.spiffe_id.startswith(spiffe["value"]) if is_prefix else caller.spiffe_id == spiffe["value"]
    if sni := match.get("sni"):
        yield caller.server_name == sni["value"]

"""What each route takes: the one table of who may call what. A route that is not in it cannot be served.

See record 0060.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cp.access.rights import (
    CONTROL_PLANE,
    DATAPLANE_TOKEN,
    INSPECTION,
    METRICS,
    USER_TOKEN,
    ZONE_TOKEN,
    AccessDecision,
    Verb,
    of_resource,
)
from cp.api.caller import ApiCaller
from cp.api.kuma_only import KUMA_ONLY
from cp.api.plurals import kind_of_plural
from cp.model.names import Key
from cp.resources.kinds import Kinds
from cp.resources.world import World

_READ: Final = Verb.READ
_WRITE: Final = Verb.WRITE
_DATAPLANE: Final = "Dataplane"
_ROLLOUT: Final = "Rollout"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A right that a request takes. Where it is wide, the handler judges the rest: what it lists, what is in a body."""

    verbs: tuple[Verb, ...]
    kind: str = ""
    """Empty: the one that the path names. `*`: any."""

    in_any_mesh: bool = False
    """Whether one mesh is enough, because the path names none."""

    is_for_proxies: bool = False
    """Whether a proxy may do it to its own Dataplane."""

    is_for_every_proxy: bool = False
    """Whether a proxy may do it because nothing of others is in the answer."""

    may_create: bool = False
    """Whether the Dataplane need not be there. Then the handler judges the one in the body too."""

    def decision(self, caller: ApiCaller, path: Mapping[str, Any], kinds: Kinds, world: World | None) -> AccessDecision:
        if caller.proxy is not None and self.is_for_every_proxy:
            return AccessDecision(allowed=True, because="every proxy may")
        if caller.proxy is not None and self.is_for_proxies:
            key = Key(self.kind or kind_named(path["plural"], kinds), path["mesh"], path["name"])
            if key.type == _DATAPLANE:
                return self._decision_for_proxy(caller, key, world)
        if self.kind == ANYTHING:
            return caller.rights.may_something(caller.user, *self.verbs, mesh=path.get("mesh"))
        kind = self.kind or kind_named(str(path.get("plural", "")), kinds)
        if self.in_any_mesh and not _is_global(kind, kinds):
            return caller.rights.may_somewhere(caller.user, self.verbs[0], kind)
        return caller.decision(of_resource(self.verbs[0], kind, str(path.get("mesh", "")), str(path.get("name", ""))))

    def _decision_for_proxy(self, caller: ApiCaller, key: Key, world: World | None) -> AccessDecision:
        dataplane = None if world is None else world.get(key)
        is_new = dataplane is None and self.may_create
        return (caller.as_of_any_service() if is_new else caller).proxy_decision(dataplane, key, world)


ANYTHING: Final = "*"
Requirements: TypeAlias = tuple[Requirement, ...]

OPEN: Final[Requirements] = ()
"""For everybody."""

_NAMED: Final = (Requirement((_READ,)),)
_WRITTEN: Final = (Requirement((_WRITE,)),)
_READ_IN_MESH: Final = (Requirement((_READ,), is_for_proxies=True),)
_PUT_IN_MESH: Final = (Requirement((_WRITE,), is_for_proxies=True, may_create=True),)
_DELETED_IN_MESH: Final = (Requirement((_WRITE,), is_for_proxies=True),)
_LISTED: Final = (Requirement((_READ,), in_any_mesh=True),)
_DATAPLANES: Final = (Requirement((_READ,), _DATAPLANE),)
_OF_ALL_DATAPLANES: Final = (Requirement((_READ,), _DATAPLANE, in_any_mesh=True),)
_OF_ALL_DATAPLANES_WRITTEN: Final = (Requirement((_WRITE,), _DATAPLANE, in_any_mesh=True),)
_INSPECTED: Final = (Requirement((_READ,), INSPECTION),)
_INSPECTED_ANYWHERE: Final = (Requirement((_READ,), INSPECTION, in_any_mesh=True),)
_OF_CONTROL_PLANE: Final = (Requirement((_READ,), CONTROL_PLANE),)
BOOTSTRAP: Final = "/bootstrap"
_PROXY: Final = "/meshes/{mesh}/dataplanes/{name}"

REQUIREMENTS: Final[Mapping[tuple[str, str], Requirements]] = MappingProxyType(
    {
        ("GET", "/"): OPEN,
        ("GET", "/healthy"): OPEN,
        ("GET", "/health"): OPEN,
        ("GET", "/ready"): OPEN,
        ("GET", "/who-am-i"): OPEN,
        ("POST", BOOTSTRAP): _OF_ALL_DATAPLANES_WRITTEN,
        ("GET", "/gui"): OPEN,  # files without anything of the mesh; what they ask for takes rights as ever
        ("GET", "/gui/assets/{name}"): OPEN,
        ("GET", "/gui/{path:path}"): OPEN,
        ("GET", "/config"): _OF_CONTROL_PLANE,
        ("GET", "/_resources"): _OF_CONTROL_PLANE,
        ("GET", "/policies"): _OF_CONTROL_PLANE,
        ("GET", "/metrics"): (Requirement((_READ,), METRICS),),
        ("GET", "/_instances"): _OF_CONTROL_PLANE,
        ("POST", "/_instances/_ask"): OPEN,  # the handler asks for a token that control planes alone have
        ("GET", "/_prometheus/targets"): _OF_ALL_DATAPLANES + _INSPECTED_ANYWHERE,
        ("GET", "/_lint"): _INSPECTED_ANYWHERE,
        ("GET", "/meshes/{mesh}/_lint"): _INSPECTED,
        ("GET", "/meshes/{mesh}/_policies"): _INSPECTED,
        ("GET", "/meshes/{mesh}/_graph"): (Requirement((_READ,), _DATAPLANE), *_INSPECTED),
        ("GET", "/_delivery"): _INSPECTED_ANYWHERE,
        ("POST", "/_delivery"): (Requirement((_READ,), INSPECTION, in_any_mesh=True, is_for_every_proxy=True),),
        ("GET", "/_fleet"): _OF_ALL_DATAPLANES,
        ("GET", "/_feed"): (Requirement((_READ,), ANYTHING),),
        ("GET", "/_changes"): (Requirement((_READ,), ANYTHING),),
        ("GET", "/_history"): (Requirement((_READ,), ANYTHING),),
        ("GET", "/_diff"): (Requirement((_READ,), ANYTHING),),
        ("GET", "/_diff/proxies"): _OF_ALL_DATAPLANES + _INSPECTED_ANYWHERE,
        ("GET", "/_diff/plan"): _OF_ALL_DATAPLANES + _INSPECTED_ANYWHERE,
        ("GET", "/_export"): (Requirement((_READ,), ANYTHING),),
        ("POST", "/_rollback"): (Requirement((_WRITE,), ANYTHING),),
        ("POST", "/_apply"): (Requirement((_WRITE,), ANYTHING),),
        ("GET", "/_rollouts"): (Requirement((_READ,), _ROLLOUT, in_any_mesh=True),),
        ("GET", "/meshes/{mesh}/_rollout"): (Requirement((_READ,), _ROLLOUT),),
        ("POST", "/meshes/{mesh}/_rollout"): (Requirement((_WRITE,), ANYTHING),),
        ("POST", "/validate"): (Requirement((_READ, _WRITE), ANYTHING),),
        ("POST", "/tokens/dataplane"): (Requirement((_WRITE,), DATAPLANE_TOKEN, in_any_mesh=True),),
        ("POST", "/tokens/zone"): (Requirement((_WRITE,), ZONE_TOKEN),),
        ("POST", "/tokens/user"): (Requirement((_WRITE,), USER_TOKEN),),
        ("POST", f"{_PROXY}/_readiness"): (Requirement((_WRITE,), _DATAPLANE, is_for_proxies=True),),
        ("POST", f"{_PROXY}/_link"): (Requirement((_WRITE,), _DATAPLANE, is_for_proxies=True),),
        ("POST", f"{_PROXY}/_link/{{question}}"): (Requirement((_WRITE,), _DATAPLANE, is_for_proxies=True),),
        ("GET", f"{_PROXY}/_envoy/diff"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/_envoy/{{subject}}"): _DATAPLANES + _INSPECTED,
        ("PUT", f"{_PROXY}/_envoy/log_level"): (Requirement((_WRITE,), _DATAPLANE), *_INSPECTED),
        ("GET", f"{_PROXY}/xds"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/stats"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/clusters"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/_config"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/_rules"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/_policies"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/_delivery"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/_explain"): _DATAPLANES + _INSPECTED,
        ("GET", f"{_PROXY}/_values"): _DATAPLANES + _INSPECTED,
        ("GET", "/meshes/{mesh}/{plural}/{name}/_resources/dataplanes"): _NAMED + _INSPECTED,
        ("GET", "/meshes/{mesh}/dataplanes/_overview"): _DATAPLANES,
        ("GET", "/meshes/{mesh}/dataplanes+insights"): _DATAPLANES,
        ("GET", f"{_PROXY}/_overview"): (Requirement((_READ,), _DATAPLANE, is_for_proxies=True),),
        ("GET", "/meshes/{mesh}/dataplanes+insights/{name}"): _DATAPLANES,
        ("GET", "/dataplanes/_overview"): _OF_ALL_DATAPLANES,
        ("GET", "/dataplanes+insights"): _OF_ALL_DATAPLANES,
        ("GET", "/meshes/{mesh}/{plural}/{name}"): _READ_IN_MESH,
        ("PUT", "/meshes/{mesh}/{plural}/{name}"): _PUT_IN_MESH,
        ("DELETE", "/meshes/{mesh}/{plural}/{name}"): _DELETED_IN_MESH,
        ("GET", "/{plural}/{name}"): _NAMED,
        ("PUT", "/{plural}/{name}"): _WRITTEN,
        ("DELETE", "/{plural}/{name}"): _WRITTEN,
        ("GET", "/meshes/{mesh}/{plural}"): _NAMED,
        ("GET", "/{plural}"): _LISTED,
    }
)
"""By method and path. HEAD is GET."""


def requirements_of(path: str, methods: set[str]) -> dict[str, Requirements]:
    """What a route takes, by method. Raises `LookupError` if somebody forgot to decide that."""
    required = {method: REQUIREMENTS[method, path] for method in methods - {"HEAD"}}
    return required | ({"HEAD": required["GET"]} if "HEAD" in methods else {})


def kind_named(plural: str, kinds: Kinds) -> str:
    """The kind that a path names. What is no kind is granted as a kind of that name would be."""
    kind = kind_of_plural(plural, kinds)
    return KUMA_ONLY.get(plural, plural) if kind is None else kind.name


def decisions(
    required: Requirements, caller: ApiCaller, path: Mapping[str, Any], kinds: Kinds, world: World | None
) -> Iterator[AccessDecision]:
    return (requirement.decision(caller, path, kinds, world) for requirement in required)


def _is_global(kind: str, kinds: Kinds) -> bool:
    """Whether resources of a kind are in no mesh. A Mesh counts as being in itself."""
    return kind in kinds and kinds[kind].is_global and kind != "Mesh"

"""Rights: who may read and write which kinds, and in which meshes.

What is not granted is refused. A right names users or groups, verbs, meshes and kinds; a caller may do what one right
grants as a whole. Administrators may do everything.

See record 0060.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cp.access.powers import NAMED_BEFORE, NAMED_KINDS, worst_of
from cp.model.wording import few

ADMIN: Final = "mesh-system:admin"
AUTHENTICATED: Final = "mesh-system:authenticated"
UNAUTHENTICATED: Final = "mesh-system:unauthenticated"

INSPECTION: Final = "Inspection"
CONTROL_PLANE: Final = "ControlPlane"
METRICS: Final = "Metrics"
DATAPLANE_TOKEN: Final = "DataplaneToken"  # noqa: S105  # the name of what is granted
USER_TOKEN: Final = "UserToken"  # noqa: S105  # the same
ZONE_TOKEN: Final = "ZoneToken"  # noqa: S105  # the same

BESIDE_RESOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        INSPECTION: "what a mesh comes to: rules, explanations, findings, delivery and Envoy's configuration",
        CONTROL_PLANE: "the settings of the control plane and the kinds that it knows",
        METRICS: "the metrics of the control plane",
        DATAPLANE_TOKEN: "tokens for the proxies of a mesh, which are written",
        USER_TOKEN: "tokens for people and programs, which are written: whoever may is an administrator",
        ZONE_TOKEN: "tokens for zone proxies, which are written",
    }
)
"""What is granted as kinds of resources are, and is none."""

WITHOUT_MESH: Final = frozenset({CONTROL_PLANE, METRICS, USER_TOKEN, ZONE_TOKEN})

BY_NAME: Final = frozenset({"Secret", "GlobalSecret", DATAPLANE_TOKEN, USER_TOKEN, ZONE_TOKEN})
"""Kinds of which a right has to name each: one that names no kinds is for all others."""

BY_NAME_TO_WRITE: Final = BY_NAME | NAMED_KINDS
"""The same for rights to write: their writers have more power over proxies than all others (`cp.access.powers`)."""

_MESH: Final = "Mesh"
_SHOWN: Final = 10


class Verb(StrEnum):
    """What is done. Whoever may write may not therefore read."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class User:
    """Who calls, as a token or the place of the call says."""

    name: str
    groups: tuple[str, ...] = ()

    def __str__(self) -> str:
        groups = few([f"`{group}`" for group in self.groups], _SHOWN)
        return f"user `{self.name}` (groups {groups})" if groups else f"user `{self.name}` (no groups)"


NOBODY: Final = User("mesh-system:anonymous", (UNAUTHENTICATED,))
LOCAL_ADMIN: Final = User(ADMIN, (ADMIN, AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class Subjects:
    """Users and groups by their names."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def include(self, user: User) -> bool:
        return user.name in self.users or not self.groups.isdisjoint(user.groups)


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """Something that a caller may want to do."""

    verb: Verb
    kind: str
    mesh: str = ""
    is_by_name: bool = False
    """True if only a right that names the kind will do."""

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} in mesh `{self.mesh}`" if self.mesh else f"{self.verb} {self.kind}"


def of_resource(verb: Verb, kind: str, mesh: str, name: str) -> AccessRequest:
    """The permission that a resource takes. A Mesh counts as being in itself, so a right for a mesh covers it."""
    return AccessRequest(verb, kind, name if kind == _MESH else mesh)


def by_name(verb: Verb) -> frozenset[str]:
    """Return the kinds that a right has to name."""
    return BY_NAME_TO_WRITE if verb is Verb.WRITE else BY_NAME


@dataclass(frozen=True, slots=True)
class AccessRight:
    """One right: some people may do something to some kinds in some meshes."""

    subjects: Subjects
    verbs: frozenset[Verb]
    meshes: frozenset[str] | None = None
    """None is every mesh, and what belongs to no mesh."""

    kinds: frozenset[str] | None = None
    """None is every kind that need not be named."""

    but: frozenset[str] = frozenset()
    """Kinds for which it is not."""

    place: str = ""
    """The file and line, or the setting, that grants it."""

    def covers(self, wanted: AccessRequest, mesh: str | None) -> bool:
        """True if it grants something in a mesh or, if that is None, in some mesh."""
        needs_name = wanted.is_by_name or wanted.kind in by_name(wanted.verb)
        return self._is_for(wanted, mesh, includes_unnamed=not needs_name)

    def covered_before(self, wanted: AccessRequest, mesh: str | None) -> bool:
        """True if it granted something when only `NAMED_BEFORE` had to be named."""
        return self._is_for(wanted, mesh, includes_unnamed=wanted.kind not in NAMED_BEFORE)

    def _is_for(self, wanted: AccessRequest, mesh: str | None, *, includes_unnamed: bool) -> bool:
        is_for_kind = includes_unnamed if self.kinds is None else wanted.kind in self.kinds
        return wanted.verb in self.verbs and is_for_kind and wanted.kind not in self.but and self.is_in(mesh)

    def is_in(self, mesh: str | None) -> bool:
        """Whether it is for a mesh or, if that is None, for some mesh."""
        return self.meshes is None or mesh is None or mesh in self.meshes


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether something is allowed, and the sentence that says why."""

    allowed: bool
    because: str
    is_tolerated: bool = False
    """True if it is allowed only because rights that name no kinds still count as before (`KOGUMA_ACCESS_UNNAMED`)."""


@dataclass(frozen=True, slots=True)
class Rights:
    """All rights that are in effect."""

    administrators: Subjects
    rights: tuple[AccessRight, ...] = field(default=())
    tolerates_unnamed: bool = False
    """True if rights that name no kinds still cover what has to be named since record 0096."""

    def is_administrator(self, user: User) -> bool:
        return self.administrators.include(user)

    def may(self, user: User, verb: Verb, kind: str, mesh: str = "") -> AccessDecision:
        """Whether a user may do something in a mesh or, with an empty mesh, to what belongs to none."""
        return self.decision(user, AccessRequest(verb, kind, mesh))

    def decision(self, user: User, wanted: AccessRequest) -> AccessDecision:
        """Return whether a user may do something, and why."""
        return self._decision(user, wanted, wanted.mesh)

    def may_somewhere(self, user: User, verb: Verb, kind: str) -> AccessDecision:
        """Whether a user may do something in at least one mesh."""
        return self._decision(user, AccessRequest(verb, kind), None)

    def may_something(self, user: User, *verbs: Verb, mesh: str | None = None) -> AccessDecision:
        """Whether a user may do one of these to anything at all, in a mesh or, without one, anywhere."""
        allowed = self.is_administrator(user) or any(
            right.subjects.include(user) and not right.verbs.isdisjoint(verbs) and right.is_in(mesh)
            for right in self.rights
        )
        deed, where = " or ".join(verbs), "" if mesh is None else f" in mesh `{mesh}`"
        wish = f"may {deed} something{where}" if allowed else f"may not {deed} anything{where}"
        return AccessDecision(allowed, f"{user} {wish}")

    def _decision(self, user: User, wanted: AccessRequest, mesh: str | None) -> AccessDecision:
        if self.is_administrator(user):
            return AccessDecision(allowed=True, because=f"{user} is an administrator")
        for right in self.rights:
            if right.subjects.include(user) and right.covers(wanted, mesh):
                return AccessDecision(allowed=True, because=f"{right.place or 'a right'} lets {user} {wanted}")
        where = " in any mesh" if mesh is None and wanted.kind not in WITHOUT_MESH else ""
        unnamed = self._unnamed(user, wanted, mesh)
        return AccessDecision(
            allowed=self.tolerates_unnamed and bool(unnamed),
            because=f"{user} may not {wanted}{where}{unnamed}",
            is_tolerated=self.tolerates_unnamed and bool(unnamed),
        )

    def _unnamed(self, user: User, wanted: AccessRequest, mesh: str | None) -> str:
        """Say which right does not cover something because it names no kinds; empty if none would."""
        for right in self.rights:
            if right.subjects.include(user) and right.covered_before(wanted, mesh):
                power = None if wanted.is_by_name else worst_of(wanted.kind)
                worst = "" if power is None else f" (a writer of {power.kind} can {power.harm.value})"
                return f", as {right.place or 'the right'} names no `kinds`{worst}"
        return ""


EVERYBODY_IS_ADMINISTRATOR: Final = Rights(Subjects(groups=frozenset({ADMIN, AUTHENTICATED, UNAUTHENTICATED})))
"""The rights where authentication is off."""


@dataclass(frozen=True, slots=True)
class AccessLists:
    """Kuma's access lists, which hold where no file says otherwise."""

    administrators: Subjects
    dataplane_tokens: Subjects
    user_tokens: Subjects
    zone_tokens: Subjects
    inspection: Subjects
    control_plane: Subjects


def default_rights(lists: AccessLists) -> Rights:
    """The rights without a file: whoever has a token reads all but Secrets, and the lists say the rest."""
    return Rights(lists.administrators, tuple(_default_rights(lists)))


def _default_rights(lists: AccessLists) -> Iterable[AccessRight]:
    read, write = frozenset({Verb.READ}), frozenset({Verb.WRITE})
    holders, beside = Subjects(groups=frozenset({AUTHENTICATED})), frozenset(BESIDE_RESOURCES)
    yield AccessRight(holders, read, but=beside, place="the built-in right")
    for subjects, verbs, granted, setting in (
        (lists.inspection, read, {INSPECTION}, "GET_CONFIG_DUMP"),
        (lists.control_plane, read, {CONTROL_PLANE, METRICS}, "CONTROL_PLANE_METADATA"),
        (lists.dataplane_tokens, write, {DATAPLANE_TOKEN}, "GENERATE_DP_TOKEN"),
        (lists.user_tokens, write, {USER_TOKEN}, "GENERATE_USER_TOKEN"),
        (lists.zone_tokens, write, {ZONE_TOKEN}, "GENERATE_ZONE_TOKEN"),
    ):
        yield AccessRight(subjects, verbs, kinds=frozenset(granted), place=f"KUMA_ACCESS_STATIC_{setting}")

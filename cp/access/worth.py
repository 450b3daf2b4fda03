"""The worth of rights: the worst that each lets its holders do, and the writes that it does not cover without names.

See record 0096.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cp.access.powers import NAMED_BEFORE, NAMED_KINDS, NAMED_PARTS, POWERS, Grant, Power
from cp.access.rights import AccessRight, Rights, Subjects, Verb
from cp.model.violation import Finding, Severity

CODE: Final = "unnamed-rights"
_SECRET: Final = "Secret"  # noqa: S105  # a kind of resource

NEWLY_NAMED: Final = (NAMED_KINDS - NAMED_BEFORE) | NAMED_PARTS.keys()
"""Kinds that rights without `kinds` covered wholly before record 0096."""

_NAMED: Final = NAMED_KINDS | NAMED_PARTS.keys()
"""Kinds whose writes take, in parts or wholly, a right that names them."""


@dataclass(frozen=True, slots=True)
class RightWorth:
    """The worth of one right."""

    right: AccessRight
    worst: Power | None
    """The gravest power that it gives; None if nothing is written by it."""

    not_covered: tuple[str, ...]
    """The kinds whose writes it covers in parts or not at all, only because it names none."""

    lost: tuple[str, ...]
    """Those of `not_covered` that the right covered before record 0096."""

    @property
    def to_grant(self) -> str:
        """Return a right for the same holders that covers what this one lost, as a line for the file."""
        if not self.lost:
            return ""
        parts = {**_holders(self.right), "may": [Verb.WRITE.value]}
        parts |= {} if self.right.meshes is None else {"meshes": sorted(self.right.meshes)}
        parts |= {"kinds": list(self.lost)}
        words = ", ".join(f"{name}: [{', '.join(values)}]" for name, values in parts.items())
        return f"- {{{words}}}"

    def as_data(self) -> dict[str, Any]:
        right = self.right
        return {
            "place": right.place,
            **{name: _holders(right).get(name, []) for name in ("users", "groups")},
            "may": sorted(right.verbs),
            "meshes": None if right.meshes is None else sorted(right.meshes),
            "kinds": None if right.kinds is None else sorted(right.kinds),
            "worst": None if self.worst is None else {"kind": self.worst.kind, "can": self.worst.harm.value},
            "notCovered": list(self.not_covered),
            "lost": list(self.lost),
            "toGrant": self.to_grant,
        }


def worths(rights: Iterable[AccessRight]) -> Iterator[RightWorth]:
    """Yield the worth of each right."""
    for right in rights:
        is_unnamed = right.kinds is None and Verb.WRITE in right.verbs
        not_covered = _NAMED - right.but if is_unnamed else frozenset[str]()
        yield RightWorth(right, _worst(right), tuple(sorted(not_covered)), tuple(sorted(not_covered & NEWLY_NAMED)))


def administrators_only(rights: Iterable[AccessRight]) -> tuple[str, ...]:
    """Return the kinds that a right has to name to cover their writes, and that none of the rights names."""
    writing = [right for right in rights if Verb.WRITE in right.verbs]
    named = frozenset[str]().union(*(right.kinds for right in writing if right.kinds is not None))
    return tuple(sorted(NAMED_KINDS - named))


def unnamed(rights: Rights) -> Iterator[Finding]:
    """Yield a finding for each right that covers something only because `KOGUMA_ACCESS_UNNAMED` tolerates it."""
    for worth in worths(rights.rights) if rights.tolerates_unnamed else ():
        if worth.lost:
            kinds = ", ".join(worth.lost)
            message = f"names no `kinds`, and covers writes of {kinds} only while KOGUMA_ACCESS_UNNAMED is `warn`"
            file, _, line = worth.right.place.rpartition(":")
            hint = f"add the right `{worth.to_grant}`, or leave out what its holders do not need"
            yield Finding(CODE, Severity.WARNING, None, message, hint=hint, file=file, line=int(line or 0))


def _holders(right: AccessRight) -> Mapping[str, list[str]]:
    return {name: names for name, names in names_of(right.subjects).items() if names}


def names_of(subjects: Subjects) -> Mapping[str, list[str]]:
    """Return users and groups as data."""
    return {"users": sorted(subjects.users), "groups": sorted(subjects.groups)}


def _worst(right: AccessRight) -> Power | None:
    """Return the gravest power of a right. The table begins with the gravest."""
    if Verb.WRITE not in right.verbs:
        return None
    return next((power for power in POWERS if _gives(right, power)), None)


def _gives(right: AccessRight, power: Power) -> bool:
    if right.kinds is None:
        return power.grant is Grant.PLAIN and power.kind not in right.but
    sends_secrets = power.grant is Grant.SECRETS and _SECRET in right.kinds
    return power.kind in right.kinds and (power.grant in {Grant.PLAIN, Grant.NAMED} or sends_secrets)

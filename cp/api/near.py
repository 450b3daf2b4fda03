"""What is near to something that is not there, for an answer that helps."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cp.api.errors import NOT_FOUND, ApiError
from cp.model.wording import few
from cp.resources.world import World

_MOST_NAMED: Final = 8
_LONGEST: Final = 100
"""Comparing two names costs the product of their lengths."""

_COMPARED: Final = 200
_DIFFERENCE: Final = 4


@dataclass(eq=False)
class Missing(ApiError):
    """There is no such thing. What is there instead is looked for beside the event loop: it may be long."""

    name: str = ""
    known: Iterable[str] = ()
    otherwise: str = ""

    def with_hint(self) -> ApiError:
        """The answer with what was probably meant, or what there is, or what to do."""
        hint = instead(self.name, self.known) or self.otherwise
        return replace(self, detail=f"{self.detail}; {hint}", known=()) if hint else self


def not_found(kind: str, name: str, known: Iterable[str], otherwise: str = "") -> Missing:
    """There is no such thing as was asked for; the known ones are looked at later."""
    detail = f"there is no {kind} `{name}`"
    return Missing(NOT_FOUND, "Not found", detail, name=name, known=known, otherwise=otherwise)


def must_have_mesh(world: World, mesh: str) -> None:
    """Check that a World has a mesh. Raises `ApiError`, with the names that are near."""
    if world.mesh(mesh) is None:
        raise not_found("Mesh", mesh, (known.name for known in world.table("Mesh")))


def instead(name: str, known: Iterable[str]) -> str:
    """What was probably meant by a name, or what there is; empty where there is nothing."""
    names = sorted(known)
    return _nearest(name, names) or _list_of(names)


def _nearest(name: str, names: Sequence[str]) -> str:
    if len(name) > _LONGEST:
        return ""
    close = [known for known in names if _may_be(name, known)][:_COMPARED]
    near = difflib.get_close_matches(name, close, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def _may_be(name: str, known: str) -> bool:
    """A quick look at whether a name can be a misspelt other."""
    return abs(len(name) - len(known)) <= _DIFFERENCE and (name[:1] == known[:1] or name[-1:] == known[-1:])


def _list_of(names: Sequence[str]) -> str:
    return f"there is {few([f'`{name}`' for name in names], _MOST_NAMED)}" if names else ""

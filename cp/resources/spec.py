"""What the specs of all policies have in common: a target, and lists of items with a conf each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Literal, TypeVar

import msgspec

from cp.model.target import EVERYTHING, TargetRef
from cp.model.violation import Violation
from cp.resources.checks import absent
from cp.resources.schema import Schema

Conf = TypeVar("Conf")


class SpecItem(Schema, Generic[Conf], frozen=True):
    """One destination (of `to`) or one sort of client (of `from`), and its conf."""

    target_ref: TargetRef = TargetRef()
    default: Conf | None = None


class SpiffeMatch(Schema, frozen=True):
    """A match of clients by their identity."""

    type: Literal["Exact", "Prefix"] | None = None
    value: str = ""


class SniMatch(Schema, frozen=True):
    """A match of connections by the server name that the client asked for."""

    type: Literal["Exact"] | None = None
    value: str = ""


class ClientMatch(Schema, frozen=True):
    """One match of an inbound rule: the connections that it is for."""

    spiffe_id: SpiffeMatch | None = msgspec.field(name="spiffeID", default=None)
    sni: SniMatch | None = None


class SpecRule(Schema, Generic[Conf], frozen=True):
    """An inbound rule: a conf for the connections that match or, without matches, for all."""

    matches: list[ClientMatch] | None = None
    default: Conf | None = None


class PolicySpec(Schema, frozen=True):
    """The base of every policy's spec. Each adds its own of `to`, `from`, `rules` and `default`."""

    target_ref: TargetRef | None = None

    @property
    def top(self) -> TargetRef:
        """The target at the top of the policy: the whole mesh where none is written."""
        return self.target_ref or EVERYTHING

    def items(self, level: str) -> list[Any]:
        """The items of `to`, `from` or `rules`."""
        return getattr(self, "from_" if level == "from" else level, None) or []

    @property
    def affects_inbounds(self) -> bool:
        return bool(self.items("from") or self.items("rules"))

    def confs(self, *levels: str) -> Iterator[tuple[str, Any, Any]]:
        """The path in the spec of each item's conf, the item, and the conf if it has one."""
        for level in levels or ("to", "from", "rules"):
            for index, item in enumerate(self.items(level)):
                yield f"{level}[{index}].default", item, item.default

    def needs_one_of(self, *levels: str) -> Iterator[Violation]:
        """The fault of a policy without any item in these lists: it would do nothing."""
        if not any(self.items(level) for level in levels):
            names = ", ".join(f"`{level}`" for level in levels)
            yield absent("", "says nothing", f"give it items: {names}")

    def rules_alone(self) -> Iterator[Violation]:
        """The fault of `rules` beside `to` or `from`."""
        return self.rules_without("to", "from")

    def rules_without(self, *levels: str) -> Iterator[Violation]:
        older_levels = [level for level in levels if self.items(level)]
        if older_levels and self.items("rules"):
            names = " and ".join(f"`{level}`" for level in older_levels)
            hint = (
                "write `to` in a policy of its own" if older_levels == ["to"] else "write what is in `from` as `rules`"
            )
            yield Violation("", f"`rules` cannot stand beside {names}", hint)

    def no_matches(self, hint: str = "remove them") -> Iterator[Violation]:
        """The faults of matches in the rules of a policy that cannot tell connections apart."""
        for index, rule in enumerate(self.items("rules")):
            if rule.matches:
                yield Violation(f"rules[{index}].matches", "have no meaning for this policy", hint)

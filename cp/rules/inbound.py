"""What holds on an inbound: `rules` with their matches, and `from` where it means the same.

See docs/concepts/matching-and-merging.md#which-clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final, TypeAlias

from cp.model.canonical import canonical_json
from cp.model.remembered import remembered
from cp.resources.resource import Resource
from cp.rules.combined import CombinedConf, MergeCache
from cp.rules.items import PolicyItem, items
from cp.rules.matching import precedence
from cp.rules.merging import Origin

_MOST_STEPS: Final = 50_000
"""How often a rule may be compared with a set of clients: tenths of a second, once for each set of rules."""

Match: TypeAlias = Mapping[str, Any]
"""Conditions on a client, `spiffeID` and `sni`, all of which it has to meet."""


@dataclass(frozen=True, slots=True, eq=False)
class InboundRule:
    """One item with one of its matches: it is for the connections that match, or for all where there is no match."""

    item: PolicyItem
    match: Mapping[str, Any] | None
    combined: CombinedConf

    @property
    def origin(self) -> Origin:
        return self.item.origin


@dataclass(frozen=True, slots=True, eq=False)
class ClientsConf:
    """What holds for the clients of an inbound that meet a match."""

    match: Match
    combined: CombinedConf


class InboundRules:
    """The rules of one inbound. Those with a match come first, the most specific of them in front."""

    def __init__(self, policies: Iterable[Resource], cache: MergeCache) -> None:
        self._cache = cache
        self._items = _ordered(policies)

    @remembered
    def rules(self) -> tuple[InboundRule, ...]:
        inbound_rules = [
            InboundRule(item, match, self._cache.combine((item,)))
            for item in self._items
            for match in item.matches or (None,)
        ]
        return tuple(sorted(inbound_rules, key=lambda rule: specificity(rule.match)))

    @remembered
    def for_all(self) -> CombinedConf | None:
        """What holds for every connection: the items without matches, merged."""
        general_items = tuple(item for item in self._items if not item.matches)
        return self._cache.combine(general_items) if general_items else None

    @remembered
    def for_some(self) -> tuple[ClientsConf, ...]:
        """What holds for some clients, the narrowest match first: of those that a client meets the first counts."""
        with_matches = [rule for rule in self.rules if rule.match is not None]
        if with_matches and with_matches[0].item.shape.fields_of_clients:
            return tuple(self._merged(with_matches))
        return tuple(ClientsConf(rule.match or {}, rule.combined) for rule in with_matches)

    def _merged(self, rules: Sequence[InboundRule]) -> Iterator[ClientsConf]:
        """All rules that a client meets together, for each set of clients that meet the same ones.

        So many of them that this would take long are not put together: the most specific holds, over what is for all.
        """
        general = self.for_all.items if self.for_all is not None else ()
        conditions = _conditions(rules)
        if prod(map(len, conditions.values())) * len(rules) > _MOST_STEPS:
            yield from (ClientsConf(rule.match or {}, self._cache.combine((*general, rule.item))) for rule in rules)
            return
        widest_first = sorted(rules, key=lambda rule: _narrowness(rule.match or {}))
        items_of: dict[bytes, tuple[Match, tuple[PolicyItem, ...]]] = {}
        for match in sorted(_overlaps(conditions), key=_narrowness):
            met = tuple(rule.item for rule in widest_first if includes(rule.match or {}, match))
            fallback = next((items for other, items in reversed(items_of.values()) if includes(other, match)), ())
            if met != fallback:
                items_of[canonical_json(match)] = match, met
        for match, met in reversed(items_of.values()):
            yield ClientsConf(match, self._cache.combine((*general, *met)))


def _conditions(rules: Iterable[InboundRule]) -> Mapping[str, Sequence[Mapping[str, Any] | None]]:
    """The different conditions of rules, and that there is none."""
    matches = [rule.match or {} for rule in rules]
    return {name: [*_distinct(matches, name), None] for name in ("spiffeID", "sni")}


def _overlaps(conditions: Mapping[str, Sequence[Mapping[str, Any] | None]]) -> list[Match]:
    """The matches of rules, and those that are met by clients that meet several of them."""
    pairs = product(conditions["spiffeID"], conditions["sni"])
    combined = ({"spiffeID": spiffe, "sni": sni} for spiffe, sni in pairs)
    return [{name: value for name, value in match.items() if value} for match in combined if any(match.values())]


def _distinct(matches: Iterable[Match], name: str) -> Iterable[Mapping[str, Any]]:
    conditions = (condition for match in matches if (condition := match.get(name)) is not None)
    return {canonical_json(condition): condition for condition in conditions}.values()


def includes(wider: Match, match: Match) -> bool:
    """Whether all clients that meet a match surely meet a wider one, too, or the same."""
    if wider.get("sni") not in (None, match.get("sni")):
        return False
    of_wider, of_match = wider.get("spiffeID"), match.get("spiffeID")
    if of_wider is None or of_match is None:
        return of_wider is None
    if of_wider.get("type") == "Prefix":
        return str(of_match["value"]).startswith(of_wider["value"])
    return bool(of_wider == of_match)


def meets(match: Match, uris: Iterable[str], server_name: str) -> bool:
    """Whether a client with such URIs in its certificate, who asked for a server name, meets a match."""
    spiffe, sni = match.get("spiffeID"), match.get("sni")
    if sni is not None and sni["value"] != server_name:
        return False
    if spiffe is None:
        return True
    is_prefix = spiffe.get("type") == "Prefix"
    return any(uri.startswith(spiffe["value"]) if is_prefix else uri == spiffe["value"] for uri in uris)


def _narrowness(match: Match) -> tuple[int, ...]:
    """The sort key by which wider matches come first: as `specificity`, and of two prefixes the shorter one."""
    prefix = (match.get("spiffeID") or {}).get("value", "")
    return (*(-part for part in specificity(match)), len(prefix))


def specificity(match: Mapping[str, Any] | None) -> tuple[int, int, int]:
    """The sort key of a match: by client identity first, exact before prefix; then by server name; then none."""
    spiffe = (match or {}).get("spiffeID")
    exact = spiffe is not None and spiffe.get("type") != "Prefix"
    return (0 if spiffe is not None else 1, 0 if exact else 1, 0 if (match or {}).get("sni") is not None else 1)


def _ordered(policies: Iterable[Resource]) -> list[PolicyItem]:
    """The items from the weakest policy to the strongest, those of one policy in their order."""
    strength = sorted(policies, key=precedence, reverse=True)
    return [item for policy in strength for item in items(policy).rules]

"""What is built for the parts of a call when a policy has some conf there: its row, its listener, its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cp.insight.effects import Build, built, confs_of
from cp.model.canonical import canonical_json
from cp.policies import Policy
from cp.rules.merging import Conf
from cp.translate.fragments import Task
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.packing import ROUTES
from generators.proxy import Outbound, Route

_ROUTE: Final = "explained"


def of_own_row(policy: Policy[Any], entry: OutboundResult, row: Route, of_whole: Conf) -> Build:
    """What a policy builds of one row of a route table that has a conf of its own."""
    site = _with_one_row(entry.outbound, row)
    whole = confs_of(policy, of_whole)
    return lambda conf: built(Task(site, whole, ((_ROUTE, confs_of(policy, conf)),)), policy)


def of_row(policy: Policy[Any], entry: OutboundResult, row: Route) -> Build:
    """What a policy builds of a row that has the conf of its listener."""
    site = _with_one_row(entry.outbound, row)
    return lambda conf: built(Task(site, confs_of(policy, conf)), policy, lambda packed: packed.type_url == ROUTES)


def of_listener(policy: Policy[Any], entry: OutboundResult, row: Route, of_row: Conf | None) -> Build:
    """What a policy builds of a listener without its rows. A TCP listener has none."""
    site = _with_one_row(entry.outbound, row)
    own = () if of_row is None else ((_ROUTE, confs_of(policy, of_row)),)
    return lambda conf: built(Task(site, confs_of(policy, conf), own), policy, lambda packed: packed.type_url != ROUTES)


def of_inbound(policy: Policy[Any], reached: InboundResult) -> Build:
    return lambda conf: built(Task(reached.inbound, confs_of(policy, conf)), policy)


def of_client(policy: Policy[Any], reached: InboundResult, match: Mapping[str, Any]) -> Build:
    """What a policy builds of an inbound for the clients that meet a match, where nothing holds for all."""
    client = canonical_json(match)
    kind = policy.kind.name
    return lambda conf: built(Task(reached.inbound, clients=((kind, ((client, canonical_json(conf), ""),)),)), policy)


def _with_one_row(outbound: Outbound, row: Route) -> Outbound:
    """The outbound with one row, under a name of its own, so that no other row gets its conf."""
    return replace(outbound, routes=(replace(row, owner=_ROUTE),))

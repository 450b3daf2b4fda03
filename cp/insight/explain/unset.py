"""What holds for the fields that nothing sets, not even a default of their policy: each policy says it of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cp.insight.explain.model import BUILT_IN, ENVOY, FieldValue, ValueOrigin
from cp.insight.simulate import ForwardedCall
from cp.insight.whole import written_over
from cp.model.duration import Duration
from cp.policies import Policies, UnsetField
from generators.proxy import Protocol


def unset(
    policies: Policies, known: Iterable[FieldValue], forward: ForwardedCall | None, protocol: Protocol
) -> Iterator[FieldValue]:
    """The fields of which no value is known, as far as their policies have something to say of them."""
    known_fields = {(value.policy, value.path) for value in known}
    if forward is None:
        return
    for policy in policies:
        for field in policy.unset_fields(forward, protocol):
            if (policy.kind.name, field.path) not in known_fields:
                yield _value(policy.kind.name, field)


def as_served(value: FieldValue) -> FieldValue:
    """A value that nobody set as a field of a policy, and that a patch may have written."""
    return replace(value, winner=replace(value.winner, level=ENVOY), note=value.note or "as it is served, with patches")


def uncovered(removed: Iterable[FieldValue], unset_values: Iterable[FieldValue]) -> Iterator[FieldValue]:
    """What nulls removed, with the value that holds then if there is one; and the fields that nobody spoke of."""
    by_field = {(value.policy, value.path): value for value in unset_values}
    for value in removed:
        holding = by_field.pop((value.policy, value.path), None)
        yield value if holding is None or holding.winner.value is None else replace(holding, losers=value.losers)
    yield from by_field.values()


def _value(kind: str, field: UnsetField) -> FieldValue:
    origin = ValueOrigin(field.value, BUILT_IN if field.is_built_in else ENVOY)
    return FieldValue(kind, field.path, origin, served_in=field.served_in, note=field.note)


def with_what_is_served(
    policies: Policies, value: FieldValue, forward: ForwardedCall | None, writers: Sequence[str]
) -> FieldValue:
    """The same value; or that it has no effect, where some kinds of policies wrote a time over it that is served."""
    of_kind = (policy for policy in policies if policy.kind.name == value.policy)
    policy = next(of_kind, None) if writers and forward is not None else None
    served = None if policy is None or forward is None else policy.served_time(value.path, forward)
    if served is None or served == Duration.parse(str(value.winner.value)):
        return value
    return replace(value, served_in="", note=written_over(writers))


def with_note(policies: Policies, value: FieldValue, forward: ForwardedCall | None) -> FieldValue:
    """The same value, with what its policy notes about it."""
    if forward is None:
        return value
    notes = (
        policy.value_note(value.path, value.winner.value, forward)
        for policy in policies
        if policy.kind.name == value.policy
    )
    return replace(value, note=next(filter(None, notes), value.note))

"""The selectors of legacy policies, and how they are validated."""

from __future__ import annotations

from collections.abc import Iterator

from cp.model.violation import Violation, at
from cp.resources.checks import absent, must_be_set
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.schema import Schema
from cp.resources.targets import tag


class Selector(Schema, frozen=True):
    match: dict[str, str] | None = None


class ConnectionPolicy(Schema, frozen=True):
    """A policy for those who call, `sources`, and those who are called, `destinations`."""

    sources: list[Selector] | None = None
    destinations: list[Selector] | None = None


def of_callers(policy: ConnectionPolicy) -> Iterator[Violation]:
    """The faults of the selectors of a policy that acts in the proxies of callers."""
    yield from selectors("sources", policy.sources)
    yield from selectors("destinations", policy.destinations, only=True)


def of_called(policy: ConnectionPolicy) -> Iterator[Violation]:
    """The faults of the selectors of a policy that acts in the proxies of those who are called."""
    yield from selectors("sources", policy.sources, service=False)
    yield from selectors("destinations", policy.destinations, service=False)


def selectors(
    field: str, values: list[Selector] | None, *, service: bool = True, only: bool = False
) -> Iterator[Violation]:
    """The faults of a list of selectors. With `service` each needs the tag of services, with `only` no other."""
    yield from must_be_set(field, values, f"`match` of `{SERVICE_TAG}`, or `*` for all")
    for index, selector in enumerate(values or ()):
        yield from at(f"{field}[{index}].match", matched_tags(selector.match or {}, service=service, only=only))


def matched_tags(match: dict[str, str], *, service: bool = True, only: bool = False) -> Iterator[Violation]:
    """The faults of tags by which something is chosen."""
    for name, value in match.items():
        yield from tag(name, value, anything=True)
    if service and SERVICE_TAG not in match:
        yield absent("", f"must have `{SERVICE_TAG}`", "`*` is every service")
    elif not match:
        yield absent("", "must have a tag", f"`{SERVICE_TAG}` of `*` is every service")
    if only and any(name != SERVICE_TAG for name in match):
        yield Violation("", f"can have `{SERVICE_TAG}` alone", "services are told apart by nothing else")

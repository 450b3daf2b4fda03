"""Whether a field of a conf has a meaning for the protocol that is spoken, by the facts that its policy declares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cp.policies import Policy
from generators.proxy import Protocol


def section_of(policy: Policy[Any], path: str) -> str | None:
    """The section in which a field stands; None where the field is in no section that is for some protocols only."""
    inside = (name for name in policy.section_protocols if path == name or path.startswith((f"{name}.", f"{name}[")))
    return next(inside, None)


def acts_alone(policy: Policy[Any], path: str) -> bool:
    """Whether a field outside of these sections has a meaning without them."""
    return path.partition(".")[0] not in policy.section_settings


def has_meaning(policy: Policy[Any], path: str, protocol: Protocol, conf_paths: Iterable[str]) -> bool:
    """Whether a field has a meaning where a protocol is spoken, beside the other fields of its conf."""
    section = section_of(policy, path)
    if section is not None:
        return protocol in policy.section_protocols[section]
    return acts_alone(policy, path) or any(_is_acting_section(policy, beside, protocol) for beside in conf_paths)


def _is_acting_section(policy: Policy[Any], path: str, protocol: Protocol) -> bool:
    """Whether a field is in a section that acts for a protocol, so that the settings of sections have a meaning."""
    section = section_of(policy, path)
    if section is None:
        return path.partition(".")[0] in policy.sections_for_all_protocols
    return protocol in policy.section_protocols[section]

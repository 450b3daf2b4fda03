"""What is said of a part that could not be made: which part it would have been, and which policies are about it."""

from __future__ import annotations

from dataclasses import replace

from cp.model.failure import Failure
from cp.model.names import Key
from cp.translate.effective import BUILT_IN, Effective, Rules
from cp.translate.fragments import Fragment


def with_cause(fragment: Fragment, part: str, rules: Rules, effective: Effective) -> Fragment:
    """The fragment itself or, where it could not be made, one that says of which part it would have been."""
    if fragment.failure is None:
        return fragment
    return Fragment(fragment.resources, failure=failure_of_part(fragment.failure, part, rules, effective))


def failure_of_part(failure: Failure, part: str, rules: Rules, effective: Effective) -> Failure:
    return replace(failure, part=part, policies=_policies(failure.kind, rules, effective))


def _policies(kind: str, rules: Rules, effective: Effective) -> tuple[Key, ...]:
    """The policies of a kind that have a say: those whose fields hold or, where that is not known, all matched ones."""
    fields = effective[kind].fields.values() if kind in effective else ()
    origins = (field.winner.origin for field in fields)
    writers = tuple(dict.fromkeys(origin.policy for origin in origins if origin.part != BUILT_IN))
    matched = rules[kind].matched if kind in rules else ()
    return writers or tuple(dict.fromkeys(match.policy.key for match in matched))

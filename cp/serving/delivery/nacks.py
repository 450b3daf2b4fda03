"""NACKs as findings: one finding about the likeliest policy, however many proxies NACKed the same resource."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from cp.ads.session.messages import Nack
from cp.insight.lint import CATALOGUE
from cp.model.names import Key
from cp.model.violation import Finding
from cp.model.wording import few
from cp.serving.delivery.causes import PolicyPart
from cp.translate.packing import SHORT

CODE: Final = "refused-by-envoy"

_HINT: Final = "correct it, or take it back; until then what was accepted before stays in force"
_LONGEST: Final = 600
_NUMBERS: Final = re.compile(r"\d+")
_DUMP: Final = re.compile(r"goo\.gle/\w{1,40}(?:\s|$)")
"""How the dump of a message begins, which Envoy puts before its reason or into it.

The word in the path changes at random, so that nobody compares such texts.
"""


@dataclass(frozen=True, slots=True)
class NackReport:
    """One NACK of one proxy, with the policies that the resources were made of."""

    proxy: str
    """The id of the proxy."""

    dataplane: Key
    type_url: str
    nack: Nack
    at: float
    """When the NACK came, on the clock of the hub."""

    since: float
    """Since when the proxy has accepted no version of some of these resources, on the same clock."""

    names: tuple[str, ...]
    """The resources that are held back."""

    lasts: bool
    """Whether an earlier version of all of them stays in force."""

    policies: tuple[PolicyPart, ...]
    """The parts of policies whose values they may have."""

    likeliest: tuple[PolicyPart, ...]
    """Those of `policies`, of the services and of the Dataplane that were changed together, just before the first NACK.

    If none was, those of the next publication to the proxy that changed any; all of `policies` if none did."""

    suspects: tuple[PolicyPart, ...]
    """`likeliest`, and then those that were changed later."""

    def holds_back(self, policy: Key, path: str) -> bool:
        """Whether the value at a path of a policy is in what is held back, and in nothing that stays in force."""
        parts = self.suspects if self.lasts else (*self.suspects, *self.policies)
        return any(part.policy == policy and _is_within(path, part.path) for part in parts)

    @property
    def refused(self) -> str:
        """What is held back and why, in one line."""
        return f"{_resources(self)}: {_short(without_dump(self.nack.text))}"

    @property
    def sort(self) -> tuple[object, ...]:
        """Equal for NACKs of the same resource that differ in numbers, such as addresses and ports."""
        text = without_dump(self.nack.text)
        for name in self.names:
            text = text.replace(name, "")
        return self.type_url, _NUMBERS.sub("", text), self.likeliest


@dataclass(frozen=True, slots=True)
class NackGroup:
    """NACKs of several proxies for the same reason."""

    reports: tuple[NackReport, ...]

    @property
    def first(self) -> NackReport:
        return self.reports[0]

    @property
    def proxies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(report.proxy for report in self.reports))


def grouped(nack_reports: Iterable[NackReport]) -> tuple[NackGroup, ...]:
    """Reports of the same sort together, the oldest first."""
    by_sort: dict[tuple[object, ...], list[NackReport]] = {}
    for report in sorted(nack_reports, key=lambda report: (report.since, report.proxy)):
        by_sort.setdefault(report.sort, []).append(report)
    return tuple(NackGroup(tuple(reports)) for reports in by_sort.values())


def finding(group: NackGroup) -> Finding:
    """About the policy that is most likely at fault, or about the Dataplane if no policy can be."""
    first = group.first
    culprit = first.suspects[0] if first.suspects else PolicyPart(first.dataplane, "")
    return Finding(
        code=CODE,
        severity=CATALOGUE[CODE].severity,
        resource=culprit.policy,
        message=_message(group),
        path=culprit.path,
        hint=_HINT,
        file=culprit.file,
        line=culprit.line,
    )


def sentence(group: NackGroup) -> str:
    """The finding without what to do: the policy that is most likely at fault, and what is refused for which reason."""
    return str(replace(finding(group), hint=""))


def _is_within(path: str, part: str) -> bool:
    return path == part or not part or path.startswith((f"{part}.", f"{part}["))


def _message(group: NackGroup) -> str:
    first, count = group.first, len(group.proxies)
    subject = f"{count} prox{'y refuses' if count == 1 else 'ies refuse'} ({few(group.proxies)})"
    keeps, does = ("keeps", "does") if count == 1 else ("keep", "do")
    instead = f"{keeps} the version before" if first.lasts else f"{does} without"
    also = f"; {few([str(part) for part in first.suspects[1:]])} had a say too" if first.suspects[1:] else ""
    return f"{subject} {_resources(first)}, and {instead}: {_short(without_dump(first.nack.text))}{also}"


def _resources(report: NackReport) -> str:
    type_name = SHORT.get(report.type_url, report.type_url)
    if len(report.names) == 1 and type_name != "endpoints":
        return f"the {type_name.removesuffix('s')} {report.names[0]}"
    return f"the {type_name} {few(report.names)}".rstrip()


def without_dump(text: str) -> str:
    """Envoy's reason in one line, without the dump of the resource that stands before it.

    A dump ends with a line break, or in one line with a bracket. Its texts have escapes in place of line breaks.
    """
    dump = _DUMP.search(text)
    end = max(text.rfind("\n:"), text.rfind("}:"), text.rfind("} :"))
    if dump is not None and end >= dump.end() - 1:
        text = text[: dump.start()] + text[end:].partition(":")[2]
    return " ".join(_DUMP.sub("", text).split())


def _short(text: str) -> str:
    """Without the middle: the reason stands at the beginning or at the end."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"

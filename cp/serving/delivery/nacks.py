"""Refusals as findings: however many proxies refuse a thing, it is one finding, about the policy that it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cp.ads.session.messages import Nack
from cp.insight.lint import CATALOGUE
from cp.model.names import Key
from cp.model.violation import Finding
from cp.serving.delivery.causes import PolicyPart
from cp.translate.packing import SHORT

CODE: Final = "refused-by-envoy"

_HINT: Final = "correct it, or take it back; until then what was accepted before stays in force"
_FEW: Final = 3
_LONGEST: Final = 600
_NUMBERS: Final = re.compile(r"\d+")
_DUMP: Final = re.compile(r"goo\.gle/\w{1,40} ")
"""How a whole resource begins, which Envoy repeats before what it has to say; the word in it changes by chance."""


@dataclass(frozen=True, slots=True)
class NackReport:
    """One refusal of one proxy, with what stands behind it."""

    proxy: str
    dataplane: Key
    type_url: str
    nack: Nack
    at: float
    since: float
    """Since when the proxy has taken no version of what it refuses."""

    names: tuple[str, ...]
    """The resources that are held back."""

    lasts: bool
    """Something else stays in force in place of them."""

    policies: tuple[PolicyPart, ...]
    """The parts of policies that have a say in them."""

    likeliest: tuple[PolicyPart, ...]
    """Those of them, or else the services or the Dataplane, that were changed when the trouble began.

    All policies that have a say, where none of it was."""

    suspects: tuple[PolicyPart, ...]
    """These, and then those that were changed later."""

    @property
    def sort(self) -> tuple[object, ...]:
        """Equal for refusals of the same thing by proxies with other addresses."""
        text = reason(self.nack.text)
        for name in self.names:
            text = text.replace(name, "")
        return self.type_url, _NUMBERS.sub("", text), self.likeliest


@dataclass(frozen=True, slots=True)
class NackGroup:
    """What several proxies refuse, each for itself and for the same reason."""

    complaints: tuple[NackReport, ...]

    @property
    def first(self) -> NackReport:
        return self.complaints[0]

    @property
    def proxies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.proxy for one in self.complaints))


def grouped(complaints: Iterable[NackReport]) -> tuple[NackGroup, ...]:
    """Together what is about the same, the oldest first."""
    found: dict[tuple[object, ...], list[NackReport]] = {}
    for one in sorted(complaints, key=lambda one: (one.since, one.proxy)):
        found.setdefault(one.sort, []).append(one)
    return tuple(NackGroup(tuple(some)) for some in found.values())


def finding(group: NackGroup) -> Finding:
    """About the policy that is most likely to be at fault, or about the Dataplane where no policy has a say."""
    first = group.first
    place = first.suspects[0] if first.suspects else PolicyPart(first.dataplane, "")
    return Finding(
        code=CODE,
        severity=CATALOGUE[CODE].severity,
        resource=place.policy,
        message=_message(group),
        path=place.path,
        hint=_HINT,
        file=place.file,
        line=place.line,
    )


def _message(group: NackGroup) -> str:
    first, count = group.first, len(group.proxies)
    who = f"{count} prox{'y refuses' if count == 1 else 'ies refuse'} ({_few(group.proxies)})"
    keeps, does = ("keeps", "does") if count == 1 else ("keep", "do")
    instead = f"{keeps} the version before" if first.lasts else f"{does} without"
    others = f"; {_few([str(place) for place in first.suspects[1:]])} had a say too" if first.suspects[1:] else ""
    return f"{who} {_what(first)}, and {instead}: {_short(reason(first.nack.text))}{others}"


def _what(complaint: NackReport) -> str:
    type_name = SHORT.get(complaint.type_url, complaint.type_url)
    if len(complaint.names) == 1 and type_name != "endpoints":
        return f"the {type_name.removesuffix('s')} {complaint.names[0]}"
    return f"the {type_name} {_few(complaint.names)}".rstrip()


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def reason(text: str) -> str:
    """What Envoy has to say, in one line."""
    line = " ".join(text.split())
    dump = _DUMP.search(line)
    end = max(line.rfind("}:"), line.rfind("} :"))
    if dump is None or end < dump.end():
        return line
    return line[: dump.start()] + line[end:].partition(":")[2].removeprefix(" ")


def _short(text: str) -> str:
    """What matters stands at the beginning or at the end."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"

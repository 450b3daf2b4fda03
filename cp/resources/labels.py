"""Labels: which may be written, and which every resource has, whether or not it was written with them.

See record 0053.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.model.document import Document
from cp.model.names import Key
from cp.model.paths import entry
from cp.model.source import MESH_LABEL, NAME_LABEL
from cp.model.violation import Violation
from cp.resources.kinds import Kind

ORIGIN_LABEL: Final = "kuma.io/origin"
ZONE_LABEL: Final = "kuma.io/zone"
"""A label of resources, and a tag of inbounds and gateways."""

WORKLOAD_LABEL: Final = "kuma.io/workload"
"""Whose proxy a Dataplane is. Tokens can name it, and names of proxies can be made of it."""

ENVIRONMENT_LABEL: Final = "kuma.io/env"
ZONE: Final = "default"
"""The zone of a control plane that is the only one, as in Kuma."""

_WORD: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_WORD: Final = 63
_LONGEST_DOMAIN: Final = 253
_CHARACTERS: Final = "letters, digits, `-`, `_` and `.`, with a letter or digit at either end"
_ORIGINS: Final = ("global", "zone")


def label_faults(labels: Mapping[Any, Any], key: Key) -> Iterator[Violation]:
    """The faults of the labels of a document, by the rules of Kubernetes and Kuma."""
    for name, value in labels.items():
        path = "labels" + entry(name)
        if not isinstance(value, str):
            yield Violation(path, "must be a text", f'write `"{value}"`')
            continue
        yield from _name(path, str(name))
        yield from _value(path, str(name), value)
        yield from _of_kuma(path, str(name), value, key)


def _name(path: str, name: str) -> Iterator[Violation]:
    prefix, slash, word = name.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(prefix)):
        yield Violation(path, "is not the name of a label", "what stands before `/` is a domain, as `example.com`")
    elif not _is_word(word, _LONGEST_WORD):
        yield Violation(path, "is not the name of a label", f"use {_CHARACTERS}, {_LONGEST_WORD} at most")


def _value(path: str, name: str, value: str) -> Iterator[Violation]:
    """A display name may be as long as a name."""
    most = _LONGEST_DOMAIN if name == NAME_LABEL else _LONGEST_WORD
    if value and not _is_word(value, most):
        yield Violation(path, "is not the value of a label", f"use {_CHARACTERS}, {most} at most, or nothing")


def is_value(text: str) -> bool:
    """Whether a text can be the value of a label of which only we know what it means."""
    return not text or _is_word(text, _LONGEST_WORD)


def _is_word(text: str, most: int) -> bool:
    return len(text) <= most and _WORD.fullmatch(text) is not None


def _of_kuma(path: str, name: str, value: str, key: Key) -> Iterator[Violation]:
    if name == ORIGIN_LABEL and value not in _ORIGINS:
        yield Violation(path, f"is not one of {', '.join(_ORIGINS)}", "leave it out")
    if name == MESH_LABEL and key.mesh and value != key.mesh:
        yield Violation(path, "is not the mesh of the resource", f"write `{key.mesh}`, or leave it out")


def stamped(kind: Kind, document: Document) -> Mapping[str, str]:
    """The labels that Kuma's control plane writes on every resource of a mesh, where it is the only one of its mesh.

    Selectors see them as written labels. Identities and the order of policies do not.
    """
    if kind.is_global:
        return {}
    return {
        NAME_LABEL: document.key.name,
        MESH_LABEL: document.key.mesh,
        ENVIRONMENT_LABEL: "universal",
        ORIGIN_LABEL: "zone",
        ZONE_LABEL: zone_of(document.data) or ZONE,
    }


def zone_of(data: Mapping[str, Any]) -> str:
    """The zone that a document names in a label or, if it is a Dataplane, in a tag; empty where it names none."""
    labels = data.get("labels") or {}
    networking = data.get("networking") or {}
    tagged = (*(networking.get("inbound") or ()), networking.get("gateway") or {})
    named = (labels.get(ZONE_LABEL), *((place.get("tags") or {}).get(ZONE_LABEL) for place in tagged))
    return next((str(zone) for zone in named if zone), "")

"""`StandingNacks`: the NACKs of one type on one stream that still matter, and which resources are to blame for them.

A NACK has one text for a whole response: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#nack
Envoy names the resources to blame in it most of the time. Where it names none, all that was new in the response is
held back and released again in groups, one after the other (`NackSuspects`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from cp.ads.session.messages import Nack
from cp.translate.packing import PackedResource

GROUPS = 8


class StandingNacks:
    __slots__ = ("_by_name", "_suspects", "of_version")

    def __init__(self) -> None:
        self.of_version: Nack | None = None  # of a response of which nothing could be held back
        self._by_name: dict[str, Nack] = {}  # of each resource that is held back; older ones may be left in it
        self._suspects = NackSuspects()

    def is_nacked(self, version: str) -> bool:
        """The client NACKed this whole version."""
        return self.of_version is not None and self.of_version.version == version

    def add(self, nack: Nack, nacked_names: Collection[str], *, is_explained: bool) -> None:
        """A NACK of resources. If it does not explain which of them are to blame, all of them are suspects."""
        # A resource that was released or has changed since has no NACK of its own any more.
        standing = {name: earlier for name, earlier in self._by_name.items() if name in nacked_names}
        self._by_name = standing | dict.fromkeys(nack.names, nack)
        if not is_explained:
            self._suspects.add(nack.names)

    def next_suspects(self, nacked_names: Collection[str]) -> list[str]:
        """The names to release, now that the client has answered those before."""
        return self._suspects.next_group(nacked_names)

    def of(self, nacked_names: Iterable[str]) -> tuple[Nack, ...]:
        """The NACKs that stand, each once: of what is held back, and of a whole version."""
        nacks = [self._by_name[name] for name in nacked_names]
        return tuple(dict.fromkeys([*nacks, self.of_version] if self.of_version is not None else nacks))


class NackSuspects:
    """Resources of one NACK that does not say which of them are to blame, in groups.

    A group that is NACKed again is divided again, until the culprit is alone and everything else is in force.
    """

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: deque[Sequence[str]] = deque()

    def add(self, names: Sequence[str]) -> None:
        """Divide these, and try them before all others: they are the fewest."""
        size = -(-len(names) // GROUPS)  # rounded up
        self._groups.extendleft(reversed([names[at : at + size] for at in range(0, len(names), size)]))

    def next_group(self, nacked_names: Collection[str]) -> list[str]:
        """The next group to release, without what is no longer held back."""
        while self._groups:
            if group := [name for name in self._groups.popleft() if name in nacked_names]:
                return group
        return []


def culprits(text: str, resources: Sequence[PackedResource]) -> list[PackedResource]:
    """The resources that the text of a NACK blames. A single one is to blame without being named."""
    return [packed for packed in resources if len(resources) == 1 or _is_named(text, packed.name)]


def _is_named(text: str, name: str) -> bool:
    """A text has a name in it that is not a part of a longer name: `web` is not named by `web-2` or `my.web`."""
    return name in text and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None

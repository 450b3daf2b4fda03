"""The control planes on one store as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cp.cli.output import age
from cp.cli.tables import table
from cp.model.wording import printable

Data = Mapping[str, Any]

_HEADS: Final = ("NAME", "ADDRESS", "STATUS", "PROXIES", "REVISION", "CHORES", "VERSION", "AGE", "HEARD")
_LESS: Final = ("AGE", "HEARD", "CHORES", "VERSION", "REVISION")
"""The heads of columns that are left out where there is no room for them, the first one first."""


def listing(items: Sequence[Data], *, wide: bool = False) -> Iterator[str]:
    """A table, and below it why some do not answer."""
    yield from table(_HEADS, map(_row, items), less=_LESS, wide=wide).splitlines()
    for item in items:
        if item["reason"] is not None:
            yield printable(f"{item['name']} ({item['address']}) does not answer: {item['reason']}")
    if any(item["status"] == "Unknown" for item in items):
        yield "What the proxies of such an instance have is unknown."


def _row(item: Data) -> Sequence[str]:
    name = f"{item['name']} (this one)" if item["self"] else item["name"]
    proxies = "unknown" if item["proxies"] is None else str(item["proxies"])
    return (
        *(name, item["address"], item["status"], "-" if item["status"] == "Gone" else proxies),
        *(str(item["revision"]), "yes" if item["leads"] else "", item["version"], age(item["started"])),
        f"{item['silentFor']:.0f}s ago",
    )

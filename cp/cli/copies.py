"""Copies of what a store has: in another store, or in a folder of files with a store beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cp.cli.export import must_be_empty, write_files
from cp.client.problem import Problem
from cp.model.wording import without_password

if TYPE_CHECKING:
    from cp.model.document import Document
    from cp.model.names import Key
    from cp.settings import Settings
    from cp.store.port import Contents, Store, Stored

_ORIGIN: Final = "store copy"


async def write_all(empty: Store, stored: Sequence[Stored], name: str) -> None:
    """Write everything to a store in which nothing was ever written."""
    from cp.store.port import ABSENT, Author, Put  # noqa: PLC0415  # slow to load, and only needed here

    if (await empty.revision()) != 0:
        raise Problem(f"{name} is not empty", "Name a store in which nothing was ever written.")
    # The oldest first: where dates are equal, the order says which is the newest.
    oldest_first = sorted(stored, key=lambda resource: resource.created)
    writes = [Put(resource.document, ABSENT) for resource in oldest_first]
    await empty.write(*writes, author=Author("control plane", _ORIGIN))


async def copied_to_folder(contents: Contents, target: Settings) -> tuple[Contents, list[dict[str, str]]]:
    """Write files for what people write, and what machines do to the store beside them. Then all of it is read.

    Returns what was copied, and what was left out.
    """
    from dataclasses import replace  # noqa: PLC0415  # slow to load, and only needed here

    from cp.resources.rollout import ROLLOUT_KIND  # noqa: PLC0415  # the same
    from cp.serving.storage import store_of  # noqa: PLC0415  # the same

    folder = Path(target.store.partition(":")[2])
    must_be_empty(folder)
    rollouts = [stored.document.key for stored in contents.stored if stored.document.key.type == ROLLOUT_KIND]
    copied = [stored for stored in contents.stored if stored.document.key.type != ROLLOUT_KIND]
    beside = [stored for stored in copied if _is_for_machines(stored.document)]
    if beside:
        await _write_beside(beside, target)
    write_files(folder, [_as_file(stored) for stored in copied if not _is_for_machines(stored.document)])
    async with store_of(target) as store:
        if differing := sorted(_differing(copied, (await store.read()).stored)):
            raise Problem(f"not all of it is in {folder} as it was: {differing[0]}", "Do not use this copy.")
    return replace(contents, stored=tuple(copied)), [_named(key) for key in rollouts]


def _is_for_machines(document: Document) -> bool:
    """Whether a document is kept beside a folder: people do not write it."""
    from cp.model.registration import is_registered  # noqa: PLC0415  # slow to load, and only needed here
    from cp.model.secret_names import is_of_authority  # noqa: PLC0415  # the same

    return is_registered(document) or is_of_authority(document)


async def _write_beside(stored: Sequence[Stored], target: Settings) -> None:
    from cp.serving.storage import store_of  # noqa: PLC0415  # slow to load, and only needed here

    if not target.registrations:
        hint = "Name one with KOGUMA_REGISTRATIONS, such as sqlite:///PATH. Nothing was copied."
        raise Problem(f"{stored[0].document.key} needs a store beside the folder", hint)
    alone = target.model_copy(update={"store": target.registrations, "registrations": ""})
    async with store_of(alone) as store:
        await write_all(store, stored, without_password(target.registrations))


def _as_file(stored: Stored) -> dict[str, Any]:
    """A document with its age, which files say themselves."""
    from cp.model.moments import timestamp  # noqa: PLC0415  # slow to load, and only needed here

    return {**stored.document.data, "creationTime": timestamp(stored.created)}


def _differing(before: Sequence[Stored], after: Sequence[Stored]) -> Iterator[Key]:
    copies = {stored.document.key: (stored.document, stored.created) for stored in after}
    for stored in before:
        if copies.pop(stored.document.key, None) != (stored.document, stored.created):
            yield stored.document.key
    yield from copies


def _named(key: Key) -> dict[str, str]:
    return {"type": key.type, "mesh": key.mesh, "name": key.name}

"""`koguma store copy`: all resources of one store in another, such as a database in place of a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cp.cli.options import SettingsFile, TextFormat, TextOutput
from cp.cli.output import reply
from cp.cli.own_settings import own_settings
from cp.client.problem import Problem
from cp.model.wording import without_password

if TYPE_CHECKING:
    from cp.settings import Settings
    from cp.store.port import Store

Source = Annotated[str, typer.Argument(metavar="FROM", help="The URL of the store to read, as `koguma run` takes it.")]
Target = Annotated[str, typer.Argument(metavar="TO", help="The URL of an empty store, which is made if need be.")]

_MEMORY: Final = "memory:"
_ORIGIN: Final = "store copy"


def copy(source: Source, target: Target, *, config: SettingsFile = None, output: TextOutput = TextFormat.TEXT) -> None:
    """Copy all resources from one store to another that is empty, in one write.

    Each is as old as it was. The history is not copied, and revisions begin anew. Secrets are decrypted and encrypted
    with the keys of the settings. Stop the control plane before, or what is written meanwhile is not in the copy.
    """
    from cp.store.port import ReadOnly, Unusable  # noqa: PLC0415  # slow to load, and only needed here

    if _MEMORY in {source, target}:
        raise Problem("a store in memory ends with its process", "Name a store on a disk, or a database.", status=2)
    try:
        documents, revision = asyncio.run(_copied(_settings(source, config), _settings(target, config)))
    except (Unusable, ValueError) as error:
        raise Problem(str(error)) from None
    except ReadOnly:
        hint = "Use `koguma export --write FOLDER`."
        raise Problem(f"{target} is written by other means, such as an editor", hint) from None
    data = {"resources": documents, "revision": revision, "store": without_password(target)}
    text = f"{documents} resources of revision {revision} are in {without_password(target)}, without their history"
    reply(data, text, output)


async def _copied(source: Settings, target: Settings) -> tuple[int, int]:
    from cp.serving.storage import store_of  # noqa: PLC0415  # slow to load, and only needed here
    from cp.store.open import is_there  # noqa: PLC0415  # the same

    if not await is_there(source.store):
        raise Problem(f"there is no store {without_password(source.store)}", "Nothing was copied, and none was made.")
    async with store_of(source) as original, store_of(target) as empty:
        return await _copy(original, empty, without_password(target.store))


async def _copy(original: Store, empty: Store, name: str) -> tuple[int, int]:
    """Copy what is stored. Returns how many documents that are, and their revision."""
    from cp.model.violation import Severity  # noqa: PLC0415  # slow to load, and only needed here
    from cp.store.port import ABSENT, Author, Put  # noqa: PLC0415  # the same

    if (await empty.revision()) != 0:
        raise Problem(f"{name} is not empty", "Name a store in which nothing was ever written.")
    contents = await original.read()
    if faults := [finding for finding in contents.findings if finding.severity is Severity.ERROR]:
        raise Problem(f"not all of it can be read: {faults[0]}", "Mend that first. Nothing was copied.")
    # The oldest first: where dates are equal, the order says which is the newest.
    oldest_first = sorted(contents.stored, key=lambda stored: stored.created)
    writes = [Put(stored.document, ABSENT) for stored in oldest_first]
    await empty.write(*writes, author=Author("control plane", _ORIGIN))
    return len(writes), contents.revision


def _settings(store: str, config: Path | None) -> Settings:
    return own_settings(config, store=store, **({} if store.startswith("dir:") else {"registrations": ""}))

"""`koguma store copy`: all resources of one store in another, such as a database in place of a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cp.cli.copies import copied_to_folder, write_all
from cp.cli.options import SettingsFile, TextFormat, TextOutput
from cp.cli.output import reply, warn_of
from cp.cli.own_settings import own_settings
from cp.client.problem import Problem
from cp.model.wording import without_password

if TYPE_CHECKING:
    from cp.settings import Settings
    from cp.store.port import Contents, Store

Source = Annotated[str, typer.Argument(metavar="FROM", help="The URL of the store to read, as `koguma run` takes it.")]
Target = Annotated[str, typer.Argument(metavar="TO", help="The URL of an empty store, which is made if need be.")]

_MEMORY: Final = "memory:"
_FOLDER: Final = "dir:"


def copy(source: Source, target: Target, *, config: SettingsFile = None, output: TextOutput = TextFormat.TEXT) -> None:
    """Copy all resources from one store to another that is empty, in one write.

    Each is as old as it was. The history is not copied, and revisions begin anew. Secrets are decrypted and encrypted
    with the keys of the settings; in a folder they are in plain text, in files for their owner alone. What proxies
    register, and built-in authorities, are copied to the store beside the folder (KOGUMA_REGISTRATIONS). Stop the
    control plane before, or what is written meanwhile is not in the copy.
    """
    from cp.store.port import Unusable  # noqa: PLC0415  # slow to load, and only needed here

    if _MEMORY in {source, target}:
        raise Problem("a store in memory ends with its process", "Name a store on a disk, or a database.", status=2)
    try:
        contents, left_out = asyncio.run(_copied(_settings(source, config), _settings(target, config)))
    except (Unusable, ValueError) as error:
        raise Problem(str(error)) from None
    documents, revision = len(contents.stored), contents.revision
    data = {"resources": documents, "revision": revision, "store": without_password(target)}
    text = f"{documents} resources of revision {revision} are in {without_password(target)}, without their history"
    reply(data, text, output)
    warn_of("not copied, as there are no rollouts in a folder", left_out)


async def _copied(source: Settings, target: Settings) -> tuple[Contents, list[dict[str, str]]]:
    """What was copied, and what was left out."""
    from cp.serving.storage import store_of  # noqa: PLC0415  # slow to load, and only needed here
    from cp.store.open import is_there  # noqa: PLC0415  # the same

    if not await is_there(source.store):
        raise Problem(f"there is no store {without_password(source.store)}", "Nothing was copied, and none was made.")
    async with store_of(source) as original:
        contents = await _read(original)
        if target.store.startswith(_FOLDER):
            return await copied_to_folder(contents, target)
        async with store_of(target) as empty:
            await write_all(empty, contents.stored, without_password(target.store))
        return contents, []


async def _read(original: Store) -> Contents:
    from cp.model.violation import Severity  # noqa: PLC0415  # slow to load, and only needed here

    contents = await original.read()
    if faults := [finding for finding in contents.findings if finding.severity is Severity.ERROR]:
        raise Problem(f"not all of it can be read: {faults[0]}", "Mend that first. Nothing was copied.")
    return contents


def _settings(store: str, config: Path | None) -> Settings:
    return own_settings(config, store=store, **({} if store.startswith(_FOLDER) else {"registrations": ""}))

"""`FilesStore`: documents in a directory of YAML files, which people edit by their own means."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from cp.store.at_rest import NO_SECRETS, SecretsInFiles, SecretsPolicy
from cp.store.clock import Clock, utc
from cp.store.feed import tell
from cp.store.folder import Folder, FolderEdit, Parse
from cp.store.ledger_store import LedgerStore
from cp.store.port import (
    UNKNOWN,
    USUAL_LIMITS,
    Author,
    Delete,
    HistoryLimits,
    Put,
    ReadOnly,
    Unusable,
)
from cp.store.roster import Fence
from cp.store.watch import BACKSTOP, DirectoryWatch, LookResult

_PAUSE: Final = 0.02
"""Seconds between looks while something changes."""

_LASTING: Final = 0.05
"""Seconds for which a file has to stay as it is before it is read: editors and tools write in several steps."""


class FilesStore(LedgerStore):
    """A store that follows a directory. Its revisions count what this process has seen of it. Use `open`."""

    def __init__(  # noqa: PLR0913  # an option each
        self,
        root: Path,
        parse: Parse,
        *,
        limits: HistoryLimits,
        clock: Clock,
        backstop: float,
        secrets: SecretsPolicy,
    ) -> None:
        super().__init__(limits, clock)
        self._root = root
        # Used in one thread at a time: at the opening, then in that of the watch.
        self._folder = Folder(root, parse, _LASTING)
        self._secrets = SecretsInFiles(root, secrets)
        self._closed = False
        self._author = Author(origin=f"files in {root}")
        self._loop = asyncio.get_running_loop()
        self._watch = DirectoryWatch(self._look, self._failed, pause=_PAUSE, backstop=backstop)

    @classmethod
    async def open(  # noqa: PLR0913  # an option each
        cls,
        root: Path,
        parse: Parse,
        *,
        limits: HistoryLimits = USUAL_LIMITS,
        clock: Clock = utc,
        backstop: float = BACKSTOP,
        secrets: SecretsPolicy = NO_SECRETS,
    ) -> FilesStore:
        """Read a directory, and follow what becomes of it. Raises `Unusable` if it is not one."""
        store = cls(root, parse, limits=limits, clock=clock, backstop=backstop, secrets=secrets)
        store._take(await asyncio.to_thread(store._first_look))
        store._watch.start()
        return store

    def reread(self) -> None:
        """Look into the directory at once, without waiting to hear of a change."""
        self._watch.look_again()

    async def write(
        self,
        *writes: Put | Delete,
        author: Author = UNKNOWN,  # noqa: ARG002  # it writes nothing
        fence: Fence | None = None,  # noqa: ARG002  # the same
    ) -> NoReturn:
        stored_by_key = self._open().stored
        places = {stored_by_key[write.key].document.source.file for write in writes if write.key in stored_by_key}
        raise ReadOnly(
            f"the store is the directory {self._root}, which is only read: edit "
            + (", ".join(sorted(places)) or f"a file there{_hint(writes)}")
        )

    async def close(self) -> None:
        self._closed = True
        self._news.close()
        await asyncio.to_thread(self._watch.stop)

    @property
    def _is_closed(self) -> bool:
        """Where the directory can be followed no longer, what was read of it can still be asked for."""
        return self._closed

    def _first_look(self) -> FolderEdit:
        if not self._root.exists():
            raise Unusable(f"{self._root}: there is no such folder; make it, or correct the path")
        if not self._root.is_dir():
            raise Unusable(f"{self._root}: is a file; a store of files is a folder")
        return self._folder.read()

    def _look(self) -> LookResult:
        edit = self._folder.read()
        tell(self._loop, self._take, edit)
        return LookResult(edit.places, looks_again=edit.in_doubt)

    def _take(self, edit: FolderEdit) -> None:
        before = self._contents.revision
        findings = (*edit.findings, *self._secrets.findings(edit.writes))
        if self._contents.write(edit.writes, self._clock(), findings, self._author) != before:
            self._news.publish()

    def _failed(self, failure: Exception) -> None:
        tell(self._loop, self._news.fail, failure)


def _hint(writes: Sequence[Put | Delete]) -> str:
    """A proxy that brings a Dataplane which is in no file is the usual reason."""
    if all(write.key.type == "Dataplane" for write in writes):
        return ", or keep what proxies register in a store beside it (--registrations sqlite:///PATH)"
    return ""

"""`AccessKeeper`: the rights that are in force, read again when their file changes.

See record 0060.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from cp.access.keys import OfflineKeys
from cp.access.rights import AccessLists, Rights, Subjects, User, default_rights
from cp.access.rights_file import CODE, BadAccessFile, rights_of
from cp.access.worth import unnamed, worths
from cp.files import ordinary_file
from cp.model.violation import Finding, Severity
from cp.serving.lockout import lockouts
from cp.settings import Settings

_LOOKS_EVERY: Final = 1.0
_LARGEST: Final = 1024 * 1024

log = structlog.get_logger()


class AccessKeeper:
    """Keeps the rights of the settings, or of the file that they name."""

    def __init__(self, settings: Settings, kinds: Collection[str], keys: OfflineKeys | None = None) -> None:
        """Raises `BadAccessFile`."""
        self._file, self._kinds, self._lists = settings.access_file, kinds, access_lists(settings)
        self._settings, self._keys = settings, keys or OfflineKeys()
        self._stamp: tuple[int, ...] = ()
        self.rights: Rights = default_rights(self._lists)
        self._faults: tuple[Finding, ...] = ()
        """What is wrong with the file since the rights were read."""

        self._administrator: tuple[User, float] | None = None
        """An administrator who has shown a token, and when that expires."""

        if self._file is not None:
            self._stamp = _stamp(self._file)
            self.rights = self._read(self._file)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the file, whom the rights that are in force lock out, and which cover too much."""
        return (*self._faults, *self._lockouts(), *unnamed(self.rights))

    def warn(self) -> None:
        """Log whom the rights lock out, and which of them cover other writes than their words suggest."""
        for finding in (*self._lockouts(), *unnamed(self.rights)):
            log.warning("setting", code=finding.code, reason=str(finding))
        for worth in worths(self.rights.rights):
            if worth.lost and not self.rights.tolerates_unnamed:
                log.info("access.unnamed", right=worth.right.place, not_covered=worth.lost, add=worth.to_grant)

    def note_user(self, user: User, expires: float) -> None:
        """Remember an administrator who has shown a token that is good until a moment."""
        if self.rights.is_administrator(user):
            self._administrator = (user, expires)

    def _has_seen_administrator(self) -> bool:
        if self._administrator is None:
            return False
        user, expires = self._administrator
        return self.rights.is_administrator(user) and time.time() < expires

    def _lockouts(self) -> tuple[Finding, ...]:
        if self._has_seen_administrator():
            return ()
        return tuple(lockouts(self._settings, self.rights, self._keys))

    async def keep(self) -> None:
        """Follow the file until cancelled."""
        while True:
            await asyncio.sleep(_LOOKS_EVERY)
            self.look()

    def look(self) -> None:
        """Read the file if it is another one."""
        if self._file is not None and _stamp(self._file) != self._stamp:
            self.reread()

    def reread(self) -> None:
        """Read the file. If it is invalid the rights stay as they are."""
        if self._file is None:
            return
        self._stamp = _stamp(self._file)
        try:
            self.rights, self._faults = self._read(self._file), ()
        except BadAccessFile as bad:
            self._faults = bad.findings
            log.warning("access.refused", file=str(self._file), reason=str(bad), rights="those from before")
        else:
            log.info("access.loaded", file=str(self._file), rights=len(self.rights.rights))
            self.warn()

    def _read(self, file: Path) -> Rights:
        rights = read_rights(file, self._kinds, self._lists.administrators)
        return replace(rights, tolerates_unnamed=self._settings.tolerates_unnamed_rights)


def read_rights(file: Path, kinds: Collection[str], administrators: Subjects) -> Rights:
    """Read a file with rights. Raises `BadAccessFile`."""
    return rights_of(_text(file), str(file), kinds, administrators)


def access_lists(settings: Settings) -> AccessLists:
    return AccessLists(
        _subjects(settings.admin_users, settings.admin_groups),
        _subjects(settings.dataplane_token_users, settings.dataplane_token_groups),
        _subjects(settings.user_token_users, settings.user_token_groups),
        _subjects(settings.zone_token_users, settings.zone_token_groups),
        _subjects(settings.inspection_users, settings.inspection_groups),
        _subjects(settings.control_plane_users, settings.control_plane_groups),
    )


def _subjects(users: str, groups: str) -> Subjects:
    return Subjects(_names(users), _names(groups))


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


def _text(file: Path) -> str:
    try:
        with ordinary_file(file) as opened:
            mode, content = os.fstat(opened.fileno()).st_mode, opened.read(_LARGEST + 1)
        text = content.decode()
    except OSError as error:
        raise _bad(file, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise _bad(file, "is not UTF-8 text", "save it as UTF-8") from None
    if len(content) > _LARGEST:
        raise _bad(file, f"is larger than {_LARGEST >> 20} MiB")
    if mode & stat.S_IWOTH:
        raise _bad(file, "can be written by everybody on this machine", f"chmod o-w {file}")
    return text


def _bad(file: Path, message: str, hint: str = "") -> BadAccessFile:
    return BadAccessFile([Finding(CODE, Severity.ERROR, None, message, hint=hint, file=str(file))])


def _stamp(file: Path) -> tuple[int, ...]:
    """By what it is seen that a file is another one; nothing where it is not there."""
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

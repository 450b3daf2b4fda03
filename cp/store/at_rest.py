"""What is wrong with how secrets are kept: in plain text, under an old key, damaged, or open to other users.

See record 0061.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Final

from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding, Severity
from cp.model.wording import few
from cp.store.encryption import PLAIN, DocumentCodec, DocumentState, KeyName
from cp.store.port import Delete, Put, Unusable

IN_PLAIN_TEXT: Final = "secrets-in-plain-text"
BY_OTHER_HANDS: Final = "secrets-by-other-hands"
UNDER_OLD_KEY: Final = "secrets-under-old-key"
UNREADABLE: Final = "unreadable-secret"
OPEN_TO_OTHERS: Final = "open-to-others"

_ENCRYPT: Final = "run `koguma secrets encrypt`"
_SET_UP: Final = (
    "write a key to a file with `koguma generate secrets-key FILE`, name it in KOGUMA_SECRETS_KEY_FILE, and " + _ENCRYPT
)
_ELSEWHERE: Final = (
    "a folder is not encrypted; keep secrets in a store in SQLite with a key (KOGUMA_SECRETS_KEY_FILE), or name a "
    "`file` on the machine of the proxy"
)

_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_GONE: Final = DocumentState()
NEVER, WRITTEN, NOT_JUDGED = 0, 1, 3
"""Of the column `plain`: no secret was written in plain text; one was; an earlier version may have written some."""


@dataclass(frozen=True, slots=True)
class SecretsPolicy:
    """How secrets are kept, and which files and folders nobody else may read beside the store itself."""

    codec: DocumentCodec = PLAIN
    private: tuple[Path, ...] = ()


NO_SECRETS: Final = SecretsPolicy()
"""For stores of tools and tests, which do not know what a secret is."""


def encryptions(connection: Connection) -> int:
    """How often what was there was encrypted: that makes no revision, and ends findings."""
    return _at_rest(connection)[1]


def is_judged(connection: Connection) -> bool:
    """False if earlier versions may have written secrets that they took for none."""
    return _at_rest(connection)[0] != NOT_JUDGED


def _at_rest(connection: Connection) -> tuple[int, int]:
    plain, count = connection.execute("SELECT plain, encryptions FROM secrets_at_rest").fetchone()
    return plain, count


class SecretsAtRest:
    """The findings about the secrets in a database, kept up to date by what is written. It is used in one thread."""

    def __init__(self, path: Path, policy: SecretsPolicy) -> None:
        self._path, self._codec = path, policy.codec
        self._private = (path, *policy.private)
        self._states: dict[Key, DocumentState] = {}
        self._revision, self._encryptions = -1, -1

    def looked_through(self, connection: Connection, newest: int) -> tuple[Finding, ...]:
        """The findings, after every document was looked at."""
        self._revision = -1
        return self.findings(connection, newest)

    def findings(self, connection: Connection, newest: int) -> tuple[Finding, ...]:
        """The findings at the newest revision, after what was written since the last time was looked at."""
        plain, count = _at_rest(connection)
        if self._revision < 0 or count != self._encryptions:
            self._states = {}
            self._take(states(connection, self._codec))
        else:
            self._take(_states_after(connection, self._revision, self._states, self._codec))
        self._revision, self._encryptions = newest, count
        return (*self._of_documents(), *self._of_file(plain), *open_to_others(self._private))

    def _take(self, states_by_key: Iterable[tuple[Key, DocumentState]]) -> None:
        for key, state in states_by_key:
            self._states.pop(key, None)
            if not state.is_in_order:
                self._states[key] = state

    def _of_documents(self) -> Iterator[Finding]:
        for key, state in sorted(self._states.items()):
            if state.reason:
                yield unreadable(key, state.reason)

    def _of_file(self, plain: int) -> Iterator[Finding]:
        has_keys = self._codec.keys.first is not None
        in_plain_text = sorted(key for key, state in self._states.items() if state.is_plain)
        if in_plain_text and has_keys and plain == NEVER:
            yield _by_other_hands(in_plain_text, self._path)
        elif in_plain_text:
            yield in_plain_text_finding(in_plain_text, str(self._path), _ENCRYPT if has_keys else _SET_UP)
        elif plain == WRITTEN or (has_keys and plain != NEVER):
            yield _traces(self._path, _ENCRYPT if has_keys else _SET_UP)
        if old := sorted(key for key, state in self._states.items() if state.is_old):
            yield under_old_key(old, _ENCRYPT)


class SecretsInFiles:
    """The finding about secrets that stand in files, kept up to date by what is read."""

    def __init__(self, root: Path, policy: SecretsPolicy) -> None:
        self._root, self._codec, self._private = root, policy.codec, policy.private
        self._keys: set[Key] = set()

    def findings(self, writes: Iterable[Put | Delete]) -> tuple[Finding, ...]:
        for write in writes:
            self._keys.discard(write.key)
            if isinstance(write, Put) and _has_secrets(self._codec, write.document):
                self._keys.add(write.key)
        in_plain_text = (in_plain_text_finding(sorted(self._keys), str(self._root), _ELSEWHERE),) if self._keys else ()
        return (*in_plain_text, *open_to_others(self._private))


def must_have_keys(connection: Connection, path: Path, codec: DocumentCodec) -> None:
    """Raises `Unusable` if documents are encrypted with keys that are not configured."""
    missing = Counter(state.missing for _, state in states(connection, codec) if state.missing is not None)
    if missing:
        raise Unusable(f"{path}: {missing_keys(missing)}")


def states(connection: Connection, codec: DocumentCodec) -> Iterator[tuple[Key, DocumentState]]:
    """How every document stands that can hold secrets, or is encrypted."""
    query = "SELECT type, mesh, name, CAST(data AS BLOB) FROM documents WHERE substr(data, 1, 1) <> '{'"
    for type_, mesh, name, data in connection.execute(query).fetchall():
        key = Key(type_, mesh, name)
        yield key, codec.state(key, data)
    query = "SELECT mesh, name, CAST(data AS BLOB) FROM documents WHERE type = ? AND substr(data, 1, 1) = '{'"
    for type_ in sorted(codec.types):
        for mesh, name, data in connection.execute(query, (type_,)).fetchall():
            key = Key(type_, mesh, name)
            yield key, codec.state(key, data)


def _states_after(
    connection: Connection, revision: int, known: Mapping[Key, DocumentState], codec: DocumentCodec
) -> Iterator[tuple[Key, DocumentState]]:
    """How those of these documents stand that were written after a revision."""
    # Not DISTINCT: for that all of the index by names is read, and not the last rows of the log.
    changes = connection.execute("SELECT type, mesh, name FROM changes WHERE revision > ?", (revision,))
    for names in dict.fromkeys(changes.fetchall()):
        key = Key(*names)
        if key.type in codec.types | codec.confidential or key in known:
            query = "SELECT CAST(data AS BLOB) FROM documents WHERE type = ? AND mesh = ? AND name = ?"
            row = connection.execute(query, names).fetchone()
            yield key, _GONE if row is None else codec.state(key, row[0])


def open_to_others(paths: Iterable[Path]) -> Iterator[Finding]:
    """A finding for each file or folder that the group or others can read, write or enter."""
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # whoever uses it says what is wrong
            continue
        if status.st_mode & _strangers(status):
            message = f"is open to other users of the machine: its mode is {stat.S_IMODE(status.st_mode):o}"
            yield Finding(OPEN_TO_OTHERS, Severity.WARNING, None, message, hint=_closing(path, status), file=str(path))


def _strangers(status: os.stat_result) -> int:
    """The bits of those who should not get at a file. What is root's, a group of ours may read, as we have to."""
    is_by_group = status.st_uid != os.geteuid() and status.st_gid in {os.getegid(), *os.getgroups()}
    return stat.S_IRWXO | stat.S_IWGRP if is_by_group else _OF_OTHERS


def _closing(path: Path, status: os.stat_result) -> str:
    """The command that leaves a file to its owner and to us."""
    is_folder = stat.S_ISDIR(status.st_mode)
    if status.st_uid == os.geteuid():
        return f"chmod {700 if is_folder else 600} {path}"
    return f"chgrp {os.getegid()} {path} && chmod {750 if is_folder else 640} {path}"


def in_plain_text_finding(keys: list[Key], place: str, hint: str) -> Finding:
    message = f"{_documents(len(keys))} stored in plain text and {_hold(len(keys))} secrets: {few([*map(str, keys)])}"
    return Finding(IN_PLAIN_TEXT, Severity.WARNING, None, message, hint=hint, file=place)


def _by_other_hands(keys: list[Key], path: Path) -> Finding:
    """Every Koguma notes in the file that it writes secrets in plain text, also one without a key."""
    message = f"{_documents(len(keys))} stored in plain text, and no Koguma has written any: {few([*map(str, keys)])}"
    hint = f"find out who can write to the file; write them anew, or restore a backup, before you {_ENCRYPT}"
    return Finding(BY_OTHER_HANDS, Severity.ERROR, None, message, hint=hint, file=str(path))


def _traces(path: Path, hint: str) -> Finding:
    message = "secrets in plain text may be left in the history and in unused parts of the file"
    return Finding(IN_PLAIN_TEXT, Severity.WARNING, None, message, hint=hint, file=str(path))


def under_old_key(keys: list[Key], hint: str) -> Finding:
    message = f"{_documents(len(keys))} encrypted with a key that is not the first: {few([*map(str, keys)])}"
    return Finding(UNDER_OLD_KEY, Severity.INFO, None, message, hint=f"{hint} before the key is removed")


def unreadable(key: Key, reason: str) -> Finding:
    hint = "write it again, or restore a backup; until then what was last good stays in force"
    return Finding(UNREADABLE, Severity.ERROR, key, f"cannot be decrypted: {reason}", hint=hint)


def missing_keys(missing: Mapping[KeyName, int]) -> str:
    """Which keys are not configured, and how many documents need each."""
    return "; ".join(_missing(name, count) for name, count in sorted(missing.items()))


def _missing(name: KeyName, count: int) -> str:
    return (
        f"{_documents(count)} encrypted with the key {name}, which is not configured; add it to the file that "
        "KOGUMA_SECRETS_KEY_FILE names, or to KOGUMA_SECRETS_KEY"
    )


def _documents(count: int) -> str:
    return "1 document is" if count == 1 else f"{count} documents are"


def _hold(count: int) -> str:
    return "holds" if count == 1 else "hold"


def _has_secrets(codec: DocumentCodec, document: Document) -> bool:
    return codec.holds_secrets(document.key, document.data)

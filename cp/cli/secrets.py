"""`koguma secrets encrypt` and `koguma generate secrets-key`: the encryption of secrets in the store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cp.cli.options import SettingsFile, TextFormat, TextOutput
from cp.cli.output import reply
from cp.cli.own_settings import own_settings
from cp.client.problem import Problem
from cp.model.wording import without_password

if TYPE_CHECKING:
    from cp.settings import Settings
    from cp.store.encrypting import EncryptionResult, SecretsCount
    from cp.store.encryption import DocumentCodec
    from cp.store.secrets_keys import SecretsKey

Store = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The store. Default: the one that `koguma run` would use."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the documents with secrets.")]
Discard = Annotated[
    bool,
    typer.Option(
        "--discard-unreadable", help="Delete the documents that no key decrypts, for example because it is lost."
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="The file of keys. It is made if it is not there. Default: print the key."),
]
KeyId = Annotated[
    str,
    typer.Option("--id", metavar="ID", help="A name for the key. Default: its fingerprint.", show_default=False),
]

_OURS_ALONE: Final = 0o600


def encrypt(
    *,
    config: SettingsFile = None,
    store: Store = None,
    dry_run: DryRun = False,
    discard: Discard = False,
    output: TextOutput = TextFormat.TEXT,
) -> None:
    """Encrypt all secrets in the store with the first key, also while the control plane runs.

    What is in plain text or encrypted with another key is encrypted anew, in the history too, and the file or the
    tables are cleaned of what was there before. It may be ended at any time, and goes on when it is run again. Earlier
    copies and backups of the store stay as they are, and so do the log of writes and the replicas of a PostgreSQL.
    """
    from cp.store.port import Unusable  # noqa: PLC0415  # slow to load, and only needed here

    settings = own_settings(config, store=store)
    try:
        place, codec = _place(settings), _codec(settings)
        result = None if dry_run else _encrypt_all(place, codec, discards=discard)
        left = _count_secrets(place, codec) if result is None else result.left
    except Unusable as error:
        raise Problem(str(error)) from None
    lines = _counted(left) if result is None else _encrypted(result)
    reply(_as_data(result, left), "\n".join(lines), output)
    if result is not None and not left.is_all_in_order:
        raise typer.Exit(1)


def _as_data(result: EncryptionResult | None, left: SecretsCount) -> dict[str, Any]:
    made = None
    if result is not None:
        made = {"documents": result.documents, "changes": result.changes, "discarded": result.discarded}
    counts = {"inOrder": left.in_order, "old": left.old, "plain": left.plain, "unreadable": left.unreadable}
    return {"encrypted": made, "left": {**counts, "plainChanges": left.plain_changes, "oldChanges": left.old_changes}}


def generate_key(file: KeyFile = None, *, id_: KeyId = "", output: TextOutput = TextFormat.TEXT) -> None:
    """Make a key for the secrets in the store.

    In a file that has keys already it becomes the first, so that it encrypts from the next start of the control plane
    on; the keys behind it still decrypt.
    """
    from cp.store.secrets_keys import ID, SecretsKey  # noqa: PLC0415  # slow to load, and only needed here

    if id_ and not ID.fullmatch(id_):
        raise Problem(f"{id_!r} is no id of a key", "Use letters, digits, `_`, `.` and `-`.")
    key = SecretsKey.generate(id_)
    if file is None:
        reply({"id": key.id, "key": key.line}, key.line, output)
    else:
        _put_first(key, file)
        reply({"id": key.id, "file": str(file)}, f"the first key in {file} is {key.id}", output)


def _encrypt_all(place: Path | str, codec: DocumentCodec, *, discards: bool) -> EncryptionResult:
    from cp.store import encrypting  # noqa: PLC0415  # slow to load, and only needed here
    from cp.store.postgres import encrypting as encrypting_in_postgres  # noqa: PLC0415  # the same

    if isinstance(place, Path):
        return encrypting.encrypt_all(place, codec, discards=discards)
    return asyncio.run(encrypting_in_postgres.encrypt_all(place, codec, discards=discards))


def _count_secrets(place: Path | str, codec: DocumentCodec) -> SecretsCount:
    from cp.store import encrypting  # noqa: PLC0415  # slow to load, and only needed here
    from cp.store.postgres import encrypting as encrypting_in_postgres  # noqa: PLC0415  # the same

    if isinstance(place, Path):
        return encrypting.count_secrets(place, codec)
    return asyncio.run(encrypting_in_postgres.count_secrets(place, codec))


def _place(settings: Settings) -> Path | str:
    """The file of a store in SQLite, or the URL of one in PostgreSQL."""
    from cp.serving.storage import database  # noqa: PLC0415  # slow to load, and only needed here
    from cp.store.postgres.address import SCHEMES  # noqa: PLC0415  # the same

    if settings.store.partition(":")[0] in SCHEMES:
        return settings.store
    path = database(settings)
    if path is None:
        shown = without_password(settings.store)
        raise Problem(f"{shown} is no store in SQLite or PostgreSQL", "Only such a store is encrypted.")
    if not path.is_file():
        raise Problem(f"there is no store {path}", "Name it with --store sqlite:///PATH, or with --config.")
    return path.resolve()


def _codec(settings: Settings) -> DocumentCodec:
    from cp.policies import discover, kinds  # noqa: PLC0415  # slow to load, and only needed here
    from cp.serving.storage import document_codec, secrets_keys  # noqa: PLC0415  # the same

    codec = document_codec(secrets_keys(settings), kinds(discover()))
    if codec.keys.first is None:
        hint = "Write one to a file with `koguma generate secrets-key FILE`, and name it in KOGUMA_SECRETS_KEY_FILE."
        raise Problem("there is no key", hint)
    return codec


def _encrypted(result: EncryptionResult) -> Iterator[str]:
    changes = _number(result.changes, "entry", "entries")
    yield f"encrypted anew: {_number(result.documents, 'document')}, {changes} of the history"
    if result.discarded:
        yield f"deleted: {_number(result.discarded, 'document')} that no key decrypts"
    yield from _counted(result.left)


def _counted(count: SecretsCount) -> Iterator[str]:
    yield f"{_number(count.in_order, 'document')} encrypted with the first key"
    if count.old:
        yield f"{_number(count.old, 'document')} encrypted with another key"
    if count.plain:
        yield f"{_number(count.plain, 'document')} in plain text"
    if count.plain_changes:
        yield f"{_number(count.plain_changes, 'entry', 'entries')} of the history in plain text"
    if count.old_changes:
        yield f"{_number(count.old_changes, 'entry', 'entries')} of the history encrypted with another key"
    if count.unreadable:
        yield f"{_number(count.unreadable, 'document')} that no key decrypts"


def _number(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def _put_first(key: SecretsKey, file: Path) -> None:
    """Write a key before those that the file has. The file is replaced as a whole: no key is lost on the way."""
    try:
        before = _text(file, key)
        draft = file.with_name(f".{file.name}.new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OURS_ALONE), "w") as out:  # noqa: PTH123  # by its descriptor
            if before is not None:
                with suppress(PermissionError):
                    os.fchown(out.fileno(), file.stat().st_uid, file.stat().st_gid)
            out.write(f"{key.line}\n{before or ''}")
            out.flush()
            os.fsync(out.fileno())
        draft.rename(file)
    except OSError as error:
        raise Problem(f"{file} cannot be written: {error.strerror}") from None


def _text(file: Path, key: SecretsKey) -> str | None:
    """What a file of keys has; None if it is not there. Raises `Problem` if the key cannot be put before it."""
    from cp.store.port import Unusable  # noqa: PLC0415  # slow to load, and only needed here
    from cp.store.secrets_keys import SecretsKeys  # noqa: PLC0415  # the same

    if not file.exists():
        return None
    try:
        keys = SecretsKeys.read(file)
    except Unusable as error:
        raise Problem(str(error)) from None
    if any(before.id == key.id for before in keys.keys):
        raise Problem(f"{file} has a key {key.id} already", "Give the new one another --id.")
    return file.read_text("ascii")

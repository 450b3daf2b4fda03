"""`LocalTrust`: trust records in the World of one process, beside a store that cannot be written.

See record 0056.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import identity_of_trust, trust_key
from cp.store.port import UNKNOWN, Author, Delete, Put, ReadOnly, Stored

_NEVER: Final = datetime.fromtimestamp(0, UTC)


class LocalTrust:
    """A `TrustStore`. Its records end with the process."""

    def __init__(self, put: Callable[[Key, Document | None], None]) -> None:
        """`put` has a document in the World, or takes it out."""
        self._put = put
        self._stored: dict[Key, Stored] = {}

    async def get(self, key: Key) -> Stored | None:
        return self._stored.get(key)

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN) -> int:  # noqa: ARG002  # no history
        if any(not _is_record(write.key) for write in writes if isinstance(write, Put)):
            raise ReadOnly("only trust records are kept in memory")
        for write in writes:
            document = write.document if isinstance(write, Put) else None
            self._stored.pop(write.key, None)
            if document is not None:
                self._stored[write.key] = Stored(document, 1, _NEVER, _NEVER)
            self._put(write.key, document)
        return 1


def _is_record(key: Key) -> bool:
    return key == trust_key(key.mesh) or identity_of_trust(key.name) is not None

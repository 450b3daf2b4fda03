"""What the tests of encrypted stores share: keys, secrets, and a look at the bytes on the disk."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.serving.storage import document_codec
from cp.store.at_rest import SecretsPolicy
from cp.store.encryption import DocumentCodec
from cp.store.port import Put
from cp.store.secrets_keys import SecretsKey, SecretsKeys
from cp.store.sqlite import SqliteStore
from tests.store.harness import NEVER

OLD = SecretsKey("old", bytes(range(32)))
NEW = SecretsKey("new", bytes(range(1, 33)))


def codec(*keys: SecretsKey) -> DocumentCodec:
    return document_codec(SecretsKeys(keys), kinds(discover()))


@asynccontextmanager
async def secret_store(path: Path, *keys: SecretsKey, **options: Any) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, backstop=NEVER, secrets=SecretsPolicy(codec(*keys)), **options)
    try:
        yield store
    finally:
        await store.close()


def value(number: int) -> str:
    """A secret that occurs nowhere else."""
    return base64.b64encode(f"private-key-number-{number}-of-the-mesh".encode()).decode()


def secret(name: str, number: int) -> Put:
    key = Key("Secret", "default", name)
    return Put(Document(key, {"type": "Secret", "mesh": "default", "name": name, "data": value(number)}))


def service_outside(name: str, number: int) -> Put:
    """Another kind of document, with a private key in it."""
    key = Key("MeshExternalService", "default", name)
    tls = {"enabled": True, "verification": {"clientKey": {"inlineString": value(number)}}}
    match = {"type": "HostnameGenerator", "port": 443, "protocol": "tcp"}
    spec = {"match": match, "endpoints": [{"address": "api.example.com", "port": 443}], "tls": tls}
    return Put(Document(key, {"type": key.type, "mesh": "default", "name": name, "spec": spec}))


def exposed(path: Path, numbers: range) -> set[int]:
    """Those of the secrets whose bytes are in the file, or in those beside it."""
    files = b"\0".join(file.read_bytes() for file in sorted(path.parent.iterdir()) if file.is_file())
    return {number for number in numbers if value(number).encode() in files}

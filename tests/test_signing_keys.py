"""The keys that sign tokens are made once, however many control planes are asked at once."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import NoReturn

import pytest
import structlog

from cp.access.keys import ADMIN_TOKEN, KeyRing, SigningKey, signing_secret
from cp.access.tokens import UserClaims, user_claims
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.serving.signing_keys import NoSigningKey, SigningKeys
from cp.settings import load
from cp.store.memory import MemoryStore
from cp.store.port import UNKNOWN, Author, Delete, Put, ReadOnly, Store, Unusable
from cp.store.roster import Fence
from tests.access.forge import NOW, pem, private_key, secret, world

KINDS = kinds(discover())
EMPTY = world()


class Folder(MemoryStore):
    """A store that somebody else writes."""

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> NoReturn:
        raise ReadOnly("the store is the directory /mesh, which is only read")


def keys(store: Store) -> SigningKeys:
    return SigningKeys(store, KINDS, lambda: NOW)


async def stored(store: Store) -> World:
    return world(*(item.document for item in (await store.read()).stored))


async def names(store: Store) -> list[str]:
    return sorted(item.document.key.name for item in (await store.read()).stored)


def data(document: Document) -> bytes:
    return b64decode(document.data["data"])


def test_the_first_token_makes_the_key() -> None:
    async def made() -> tuple[SigningKey, World]:
        store = MemoryStore()
        return await keys(store).key(EMPTY, "dataplane", "default"), await stored(store)

    key, after = asyncio.run(made())

    assert key.kid == "1"
    assert KeyRing.of(after).public_key("dataplane", "default", "1") == key.key.public_key()


def test_of_many_that_are_asked_at_once_one_makes_the_key() -> None:
    async def made() -> tuple[list[SigningKey], list[str]]:
        store = MemoryStore()
        asked = (keys(store).key(EMPTY, "user") for _ in range(8))
        return await asyncio.gather(*asked), await names(store)

    answers, kept = asyncio.run(made())

    assert len({answer.key.public_key().public_numbers() for answer in answers}) == 1
    assert kept == ["user-token-signing-key-1"]


def test_a_key_that_is_there_signs_and_no_other_is_made() -> None:
    async def made() -> tuple[str, list[str]]:
        store = MemoryStore()
        await store.write(Put(secret("user-token-signing-key-7", pem(private_key()))))
        key = await keys(store).key(await stored(store), "user")
        return key.kid, await names(store)

    assert asyncio.run(made()) == ("7", ["user-token-signing-key-7"])


def test_where_none_can_be_stored_the_reason_says_what_to_do() -> None:
    with pytest.raises(NoSigningKey) as missing:
        asyncio.run(keys(Folder()).key(EMPTY, "dataplane", "default"))

    assert str(missing.value) == (
        "there is no signing key, and none can be stored: the store is the directory /mesh, which is only read; "
        "store one as Secret default/dataplane-token-signing-key-default-1: `koguma generate signing-key` makes it"
    )


def test_a_key_that_is_broken_is_not_replaced() -> None:
    broken = world(secret("user-token-signing-key-1", b"text"))

    with pytest.raises(NoSigningKey, match="is not an RSA key of at least 2048 bits; replace it, or delete it"):
        asyncio.run(keys(MemoryStore()).key(broken, "user"))


# --- the token of the first administrator ---------------------------------------------------------------------------


def admin(at: World, now: float = NOW) -> UserClaims:
    token = at.get(ADMIN_TOKEN)
    assert token is not None
    return user_claims(token.spec.value().decode(), KeyRing.of(at), now)


def test_the_first_start_makes_a_token_of_an_administrator() -> None:
    async def made() -> World:
        store = MemoryStore()
        await keys(store).make_admin_token()
        return await stored(store)

    after = asyncio.run(made())

    assert (admin(after).name, admin(after).groups) == ("mesh-system:admin", ("mesh-system:admin",))
    assert admin(after, NOW + 10 * 365 * 24 * 3600).expires > NOW


def test_a_later_start_makes_none() -> None:
    async def made() -> tuple[int, int]:
        store = MemoryStore()
        await keys(store).make_admin_token()
        first = await store.revision()
        await keys(store).make_admin_token()
        return first, await store.revision()

    first, second = asyncio.run(made())

    assert first == second


def test_control_planes_that_start_together_make_one() -> None:
    async def made() -> tuple[World, list[str]]:
        store = MemoryStore()
        await asyncio.gather(*(keys(store).make_admin_token() for _ in range(5)))
        return await stored(store), await names(store)

    after, kept = asyncio.run(made())

    assert kept == ["admin-user-token", "user-token-signing-key-1"]
    assert admin(after).name == "mesh-system:admin"


def test_a_token_that_was_removed_is_signed_with_the_key_in_force() -> None:
    async def made() -> tuple[World, list[str]]:
        store = MemoryStore()
        await store.write(Put(secret("user-token-signing-key-3", pem(private_key()))))
        await keys(store).make_admin_token()
        return await stored(store), await names(store)

    after, kept = asyncio.run(made())

    assert kept == ["admin-user-token", "user-token-signing-key-3"]
    assert admin(after).name == "mesh-system:admin"


def test_a_folder_has_no_such_token_and_the_start_goes_on() -> None:
    with structlog.testing.capture_logs() as logs:
        asyncio.run(keys(Folder()).make_admin_token())

    assert [entry["event"] for entry in logs] == ["signing_keys.no_admin_token"]


@pytest.mark.parametrize("method", ["get", "read", "write"])
def test_a_store_that_cannot_be_used_now_gets_no_such_token_and_the_start_goes_on(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async def busy(*_: object, **__: object) -> NoReturn:
        raise Unusable("the database is locked")

    store = MemoryStore()
    monkeypatch.setattr(store, method, busy)
    with structlog.testing.capture_logs() as logs:
        asyncio.run(keys(store).make_admin_token())

    assert [entry["event"] for entry in logs] == ["signing_keys.no_admin_token"]
    assert "the database is locked" in logs[0]["reason"]


@pytest.mark.parametrize("off", ["makes_admin_token", "issues_user_tokens", "takes_user_token_secrets", "none of them"])
def test_such_a_token_is_made_only_where_it_would_be_taken(off: str) -> None:
    settings = load(**{name: False for name in [off] if " " not in name})

    assert settings.stores_admin_token is (" " in off)


def test_neither_key_nor_token_is_in_the_log() -> None:
    async def made() -> list[bytes]:
        store = MemoryStore()
        await keys(store).make_admin_token()
        return [data(item.document) for item in (await store.read()).stored]

    with structlog.testing.capture_logs() as logs:
        secrets = asyncio.run(made())

    assert {entry["event"] for entry in logs} == {"signing_keys.made", "signing_keys.admin_token"}
    assert not [value for value in secrets if value.decode()[:60] in repr(logs)]


def test_keys_have_the_names_of_kuma() -> None:
    assert signing_secret("dataplane", "default", "1") == Key(
        "Secret", "default", "dataplane-token-signing-key-default-1"
    )
    assert signing_secret("user", "", "2") == Key("GlobalSecret", "", "user-token-signing-key-2")
    assert signing_secret("zone", "", "3") == Key("GlobalSecret", "", "zone-token-signing-key-3")

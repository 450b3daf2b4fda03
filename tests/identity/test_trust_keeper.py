"""The loop that makes authorities and writes how far a rotation has come, on a store in memory and a clock of ours."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog

from cp.ads.connection import ConnectionRecord
from cp.ads.session.messages import Node
from cp.files import read_file
from cp.identity.leaf import Certificate
from cp.identity.rotation import TrustTimes
from cp.identity.trust import NO_TRUST, TrustRecord, record_document, trust_of
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import authority_private_key, trust_key
from cp.resources.world import World
from cp.serving.delivery import Presence, ProxyState
from cp.serving.local_trust import LocalTrust
from cp.serving.trust_keeper import TrustKeeper, TrustSources
from cp.store.memory import MemoryStore
from cp.store.port import UNKNOWN, Author, Conflict, Delete, Put, ReadOnly
from cp.store.roster import Fence
from tests.identity.meshes import KINDS, NOW, PLAIN, SERVICE, dataplane, mesh, new_authority, provided, secret

PROXY = dataplane(SERVICE)
IN_SYNC, BEHIND, OFFLINE = ProxyState.ONLINE, ProxyState.OUT_OF_SYNC, ProxyState.OFFLINE
SHOWN = Certificate("default", "ca-1", "1", (), NOW, NOW, NOW, None, 1)


@dataclass
class Rig:
    """A keeper, which is started again for each sweep: it has no memory that counts."""

    store: MemoryStore = field(default_factory=MemoryStore)
    now: float = NOW
    states: dict[Key, Presence] = field(default_factory=dict)
    asked: int = 0
    started: float = NOW - 1_000
    """When the keepers were."""

    async def world(self) -> World:
        contents = await self.store.read()
        return World.of([stored.document for stored in contents.stored], KINDS, contents.revision)

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]:
        self.asked += 1
        return {key: self.states.get(key, Presence(OFFLINE, None, ())) for key in dataplanes}

    def keeper(self, store: Any = None) -> TrustKeeper:
        now, self.now = self.now, self.started
        sources = TrustSources(read_file, lambda: self.now, TrustTimes(10, 60))
        unfollowed: Any = None
        keeper = TrustKeeper(store or self.store, unfollowed, self, sources)
        self.now = now
        return keeper

    async def swept(self, keeper: TrustKeeper | None = None) -> TrustRecord:
        """The record after all that can be done now; each time by a keeper that has just been started."""
        for _ in range(5):
            before = await self.store.revision()
            await (keeper or self.keeper()).sweep(await self.world())
            if await self.store.revision() == before:
                return await self.record()
        raise AssertionError("it never comes to an end")

    async def record(self) -> TrustRecord:
        return trust_of((await self.world()).get(trust_key("default")))

    async def write(self, *documents: Document) -> TrustRecord:
        await self.store.write(*map(Put, documents))
        return await self.swept()

    async def at(self, seconds: float) -> TrustRecord:
        self.now = NOW + seconds
        return await self.swept()

    def show(self, state: ProxyState, certificate: Certificate | None = SHOWN) -> None:
        self.states[PROXY.key] = Presence(state, None, (), certificate)

    async def names(self) -> set[str]:
        return {stored.document.key.name for stored in (await self.store.read()).stored}


def run(test: Callable[[Rig], Awaitable[None]]) -> None:
    async def whole() -> None:
        rig = Rig()
        await test(rig)
        await rig.store.close()

    asyncio.run(whole())


def backends(record: TrustRecord) -> list[str]:
    return [root.backend for root in record.roots]


def signs(record: TrustRecord) -> str:
    root = record.root(record.signer)
    assert root is not None
    return root.backend


def test_a_built_in_authority_is_made_once_trusted_and_signs() -> None:
    async def test(rig: Rig) -> None:
        record = await rig.write(mesh())
        names = await rig.names()

        assert (backends(record), signs(record), record.callers) == (["ca-1"], "ca-1", True)
        assert {"default.ca-builtin-cert-ca-1", "default.ca-builtin-key-ca-1", "default.ca-trust"} <= names
        assert await rig.swept() == record

    run(test)


def test_two_control_planes_make_one_authority() -> None:
    async def test(rig: Rig) -> None:
        await rig.store.write(Put(mesh()))
        world = await rig.world()  # both have seen the same
        await asyncio.gather(rig.keeper().sweep(world), rig.keeper().sweep(world))

        record = await rig.swept()
        key = await rig.store.get(authority_private_key("default", "ca-1"))
        assert len(record.roots) == 1
        assert key is not None
        assert key.created == key.modified

    run(test)


def test_what_another_control_plane_wrote_meanwhile_is_not_overwritten() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(mesh())
        outdated = await rig.world()
        theirs = TrustRecord(callers=True)
        await rig.store.write(Put(record_document(trust_key("default"), theirs)))
        rig.now += 1
        await rig.store.write(Put(mesh("ca-2")))

        await rig.keeper().sweep(outdated.next({mesh("ca-2").key: mesh("ca-2")}, 9))

        assert await rig.record() == theirs

    run(test)


def test_a_rotation_goes_on_wherever_the_control_plane_was_killed() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(PROXY, mesh())
        rig.show(IN_SYNC)

        begun = await rig.write(mesh("ca-2"))  # every sweep is by a keeper that has just been started
        waiting = await rig.at(9)
        moved = await rig.at(10)

        assert (backends(begun), signs(begun)) == (["ca-1", "ca-2"], "ca-1")
        assert waiting == begun
        assert (backends(moved), signs(moved)) == (["ca-1", "ca-2"], "ca-2")

    run(test)


def test_a_control_plane_that_has_just_started_waits_for_proxies_to_come_back() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(PROXY, mesh())
        await rig.write(mesh("ca-2"))
        rig.started = NOW + 500

        assert signs(await rig.at(500)) == "ca-1"
        rig.show(BEHIND)
        assert signs(await rig.at(501)) == "ca-1"
        rig.show(IN_SYNC)
        assert signs(await rig.at(502)) == "ca-2"

    run(test)


def test_a_proxy_that_never_comes_back_is_waited_for_as_long_as_one_that_has_just_left() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(PROXY, mesh())
        rig.states[PROXY.key] = Presence(OFFLINE, None, (_ended(NOW + 100),))
        rig.now = NOW + 120
        await rig.write(mesh("ca-2"))

        assert signs(await rig.at(159)) == "ca-1"
        assert signs(await rig.at(160)) == "ca-2"

    run(test)


def _ended(until: float) -> ConnectionRecord:
    return ConnectionRecord(Node("default.web-1"), "sotw", NOW, until, NOW, ())


def test_proxies_are_asked_only_when_it_depends_on_them() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(PROXY, mesh())
        await rig.write(mesh("ca-2"))
        await rig.at(9)
        before = rig.asked
        await rig.at(10)

        assert (before, rig.asked > 0) == (0, True)

    run(test)


def test_a_proxy_that_is_behind_holds_a_rotation_up_and_not_for_ever() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(PROXY, mesh())
        rig.show(BEHIND)
        await rig.write(mesh("ca-2"))

        assert signs(await rig.at(59)) == "ca-1"
        assert signs(await rig.at(60)) == "ca-2"

    run(test)


async def told(rig: Rig) -> list[str]:
    """What is said of the moves of the mesh."""
    moves = await rig.keeper().moves(await rig.world(), "default")
    return [sentence for move in moves for sentence in move.sentences]


async def warned(rig: Rig) -> list[str]:
    moves = await rig.keeper().moves(await rig.world(), "default")
    return [f"{finding.code} {finding.path}" for move in moves for finding in move.findings()]


def test_a_rotation_names_the_proxies_that_it_waits_for_and_says_until_when() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(PROXY, mesh())
        rig.show(BEHIND)
        await rig.write(mesh("ca-2"))
        await rig.at(30)
        [behind] = await told(rig)
        rig.show(IN_SYNC)
        [ready] = await told(rig)

        signs = "the authority `ca-2` signs as soon as every proxy trusts it"
        assert behind == f"{signs}; it waits for web-1 (has not answered), until 2027-01-15 08:01:00 UTC at the latest"
        assert ready == f"{signs}, not before 2027-01-15 08:00:10 UTC"
        assert await warned(rig) == []

    run(test)


def test_an_authority_that_is_still_to_be_made_or_trusted_is_told_of() -> None:
    async def test(rig: Rig) -> None:
        await rig.store.write(Put(PROXY), Put(mesh()))
        rig.show(IN_SYNC)
        assert await told(rig) == ["an authority is being made, and signs as soon as every proxy trusts it"]

        await rig.swept()
        assert await told(rig) == []

        await rig.write(mesh("ca-2"))
        await rig.store.write(Delete(trust_key("default"), await revision_of(rig, trust_key("default"))))
        assert "the authority `ca-2` signs as soon as" in (await told(rig))[0]

    run(test)


async def revision_of(rig: Rig, key: Key) -> int:
    found = await rig.store.get(key)
    assert found is not None
    return found.revision


def test_callers_that_wait_name_who_has_no_certificate_and_that_there_is_no_end() -> None:
    async def test(rig: Rig) -> None:
        rig.show(IN_SYNC, None)
        await rig.write(PROXY, mesh(mode="PERMISSIVE"))
        await rig.at(100)

        [sentence] = await told(rig)

        assert sentence.endswith("it waits for web-1 (has no certificate yet), without an end")
        assert await warned(rig) == ["move-waits mtls.backends[0]"]

    run(test)


def test_who_switches_mtls_on_again_is_told_nothing_of_the_time_before() -> None:
    async def test(rig: Rig) -> None:
        rig.show(IN_SYNC)
        await rig.write(PROXY, mesh())
        await rig.write(PLAIN)
        rig.now = NOW + 100
        await rig.store.write(Put(mesh()))
        assert await told(rig) == []  # with STRICT callers wait for nobody

        await rig.store.write(Put(mesh(mode="PERMISSIVE")))
        expected = "callers speak TLS as soon as every proxy has its certificate, not before 2027-01-15 08:01:50 UTC"
        assert await told(rig) == [expected]

    run(test)


def test_a_proxy_that_is_away_is_waited_for_and_then_passed_over_and_named_both_times() -> None:
    async def test(rig: Rig) -> None:
        rig.show(IN_SYNC)
        await rig.write(PROXY, mesh(mode="PERMISSIVE"))
        rig.states[PROXY.key] = Presence(OFFLINE, None, (_ended(NOW + 5),))
        await rig.at(20)
        [away] = await told(rig)
        await rig.at(65)
        [passed] = await told(rig)

        until = "2027-01-15 08:01:05 UTC"
        assert f"web-1 (is away, and expected back until {until}), until {until} at the latest" in away
        assert passed.startswith(
            "nobody waits for those that are not connected, web-1: calls to them over TLS are lost"
        )
        assert await warned(rig) == ["move-waits mtls.backends[0]"]

    run(test)


def test_the_log_names_who_is_waited_for_once() -> None:
    async def test(rig: Rig) -> None:
        keeper = rig.keeper()
        rig.show(BEHIND)
        await rig.store.write(Put(PROXY), Put(mesh(mode="PERMISSIVE")))
        with structlog.testing.capture_logs() as logs:
            await rig.swept(keeper)
            for seconds in (20, 21, 22):
                rig.now = NOW + seconds
                await rig.swept(keeper)

        assert [line["proxies"] for line in logs if line["event"] == "trust.waits"] == [["web-1"]]

    run(test)


def test_the_old_authority_goes_when_all_that_it_signed_has_expired_and_its_key_with_it() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(mesh())
        await rig.write(mesh("ca-2"))
        await rig.at(10)
        kept, names = await rig.at(86_400), await rig.names()
        gone = await rig.at(86_400 + 20)

        assert backends(kept) == ["ca-1", "ca-2"]
        assert "default.ca-builtin-key-ca-1" in names
        assert backends(gone) == ["ca-2"]
        assert not {name for name in await rig.names() if name.endswith("ca-1")}
        assert "default.ca-builtin-key-ca-2" in await rig.names()

    run(test)


def test_callers_of_a_permissive_mesh_wait_for_certificates_of_every_connected_proxy() -> None:
    async def test(rig: Rig) -> None:
        rig.show(IN_SYNC, None)
        begun = await rig.write(PROXY, mesh(mode="PERMISSIVE"))
        without = await rig.at(1_000)
        rig.show(BEHIND)
        behind = await rig.at(1_001)
        rig.show(IN_SYNC)
        ready = await rig.at(1_002)
        strict = await rig.write(mesh(mode="STRICT"))

        assert [begun.callers, without.callers, behind.callers] == [False, False, False]
        assert ready.callers
        assert strict == ready

    run(test)


def test_a_provided_authority_that_is_replaced_in_its_secrets_is_rolled() -> None:
    old, new = new_authority()[0], new_authority()[0]
    conf = {"cert": {"secret": "our-ca"}, "key": {"secret": "our-key"}}

    async def test(rig: Rig) -> None:
        of_mesh = mesh(type="provided", conf=conf)
        first = await rig.write(of_mesh, secret("our-ca", old.certificate), secret("our-key", old.key))
        begun = await rig.write(secret("our-ca", new.certificate), secret("our-key", new.key))
        moved = await rig.at(10)

        assert begun.signer == first.signer
        assert len(begun.roots) == 2
        assert moved.signer == begun.roots[1].fingerprint
        assert {"our-ca", "our-key"} <= await rig.names()

    run(test)


def test_an_authority_that_cannot_sign_is_a_finding_and_changes_nothing() -> None:
    pair, other = new_authority()[0], new_authority()[0]

    async def test(rig: Rig) -> None:
        first = await rig.write(provided(pair))
        keeper = rig.keeper()
        await rig.store.write(Put(provided(type(pair)(pair.certificate, other.key))))
        with structlog.testing.capture_logs() as logs:
            assert await rig.swept(keeper) == first
            assert await rig.swept(keeper) == first

        finding = keeper.faults["default"]
        assert (finding.code, finding.path) == ("no-authority", "mtls.backends[0].conf.key")
        assert [line["event"] for line in logs] == ["finding"]
        assert base64.b64encode(other.key).decode() not in str((logs, finding))
        assert not (await _repaired(rig, keeper, provided(pair))).faults

    run(test)


async def _repaired(rig: Rig, keeper: TrustKeeper, document: Document) -> TrustKeeper:
    await rig.store.write(Put(document))
    await rig.swept(keeper)
    return keeper


def test_a_mesh_that_fails_holds_no_other_mesh_up(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        conf = {"cert": {"file": str(tmp_path)}, "key": {"file": str(tmp_path)}}
        other = mesh(type="provided", conf=conf).data
        key = Key("Mesh", "", "another")
        record = await rig.write(Document(key, {**other, "name": "another"}), mesh())

        assert backends(record) == ["ca-1"]

    run(test)


def test_a_mesh_without_mtls_keeps_its_authority_for_a_day() -> None:
    async def test(rig: Rig) -> None:
        on = await rig.write(mesh())
        off = await rig.write(PLAIN)
        again = await rig.write(mesh())
        await rig.write(PLAIN)
        gone = await rig.at(86_400 + 10)

        assert off.roots[0].until == NOW + 86_400 + 10
        assert not off.callers
        assert again.roots == on.roots
        assert gone == NO_TRUST
        assert await rig.names() == {"default"}

    run(test)


class FolderStore:
    """One that only an editor writes."""

    async def get(self, key: Key) -> None:
        return None

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        raise ReadOnly("edit it there")


def test_a_built_in_authority_needs_a_place_for_its_key() -> None:
    async def test(rig: Rig) -> None:
        await rig.store.write(Put(mesh()))
        keeper = rig.keeper(FolderStore())
        await keeper.sweep(await rig.world())

        assert "KOGUMA_REGISTRATIONS" in keeper.faults["default"].hint
        assert keeper.faults["default"].path == "mtls.backends[0]"

    run(test)


@pytest.mark.parametrize("was_plain", [True, False])
def test_in_a_folder_callers_speak_tls_at_once_unless_it_was_switched_on_just_now(*, was_plain: bool) -> None:
    pair, made = new_authority()
    written = dict[Key, Document | None]()

    async def test(rig: Rig) -> None:
        sources = TrustSources(read_file, lambda: rig.now, TrustTimes(10, 60), forgets=True)
        unfollowed: Any = None
        keeper = TrustKeeper(LocalTrust(written.__setitem__), unfollowed, rig, sources)
        if was_plain:
            await keeper.sweep(World.of([PLAIN], KINDS))
        await keeper.sweep(World.of([provided(pair, mode="PERMISSIVE")], KINDS))

        [document] = written.values()
        assert document is not None
        record = trust_of(World.of([PLAIN, document], KINDS).get(trust_key("default")))
        assert record.signer == made.fingerprint
        assert record.callers is not was_plain

    run(test)


def test_a_conflict_is_left_to_whoever_was_first() -> None:
    class Late(MemoryStore):
        async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
            raise Conflict(writes[0].key, 0, 1)

    async def test(rig: Rig) -> None:
        await rig.store.write(Put(mesh()))
        keeper = rig.keeper(Late())

        assert not await keeper.sweep(await rig.world())
        assert not keeper.faults

    run(test)

"""The authorities of MeshIdentities: made, trusted before they sign, and forgotten when nobody shows them any more."""

from __future__ import annotations

from typing import Any, Final

import pytest
import structlog

from cp.files import read_file
from cp.identity.authority import Authority, KeyPair
from cp.identity.identities import AuthorityRef, identity_of
from cp.identity.owners import AuthoritySources
from cp.identity.security import security_of
from cp.identity.trust import NO_TRUST, TrustRecord
from cp.identity.trust import trust_of as record_in
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import identity_private_key, identity_trust_key
from cp.model.violation import Violation
from cp.resources.mesh_trust import MeshTrust
from cp.resources.world import World
from cp.serving.local_trust import LocalTrust
from cp.serving.signers import Signers
from cp.serving.trust_keeper import TrustKeeper, TrustSources
from cp.store.memory import MemoryStore
from cp.store.port import UNKNOWN, Author, Delete, Put, ReadOnly, Stored, Unusable
from cp.store.roster import Fence
from tests.identity.meshes import KINDS, NOW, PLAIN, SERVICE, dataplane, mesh, new_authority, secret
from tests.identity.test_trust_keeper import BEHIND, IN_SYNC, FolderStore, Rig, run

DOMAIN: Final = "default.default.mesh.local"
GENERATED: Final = {"autogenerate": {"enabled": True}, "insecureAllowSelfSigned": True}
LABELLED: Final = Document(
    Key("Dataplane", "default", "web-1"), {**dataplane(SERVICE).data, "labels": {"kuma.io/workload": "web"}}
)


def identity(name: str = "a", **bundled: Any) -> Document:
    key = Key("MeshIdentity", "default", name)
    spec = {"selector": {"dataplane": {}}, "provider": {"type": "Bundled", "bundled": bundled or GENERATED}}
    return Document(key, {"type": key.type, "mesh": key.mesh, "name": name, "spec": spec})


def from_secrets(key: str = "our-key", **bundled: Any) -> Document:
    ca = {
        field: {"type": "Secret", "secretRef": {"kind": "Secret", "name": name}}
        for field, name in (("certificate", "our-ca"), ("privateKey", key))
    }
    return identity(ca=ca, **bundled)


async def record(rig: Rig, name: str = "a") -> TrustRecord:
    return record_in((await rig.world()).get(identity_trust_key("default", name)))


async def after(rig: Rig, seconds: float, name: str = "a") -> TrustRecord:
    await rig.at(seconds)
    return await record(rig, name)


async def published(rig: Rig, name: str = "a") -> MeshTrust | None:
    trust = (await rig.world()).get(Key("MeshTrust", "default", name))
    return None if trust is None else trust.spec


async def who(rig: Rig) -> str | None:
    world = await rig.world()
    proxy = world.get(LABELLED.key)
    found = None if proxy is None else identity_of(world, proxy)
    return None if found is None else found.authority.kind


def test_an_authority_is_made_and_signs_only_when_everybody_trusts_it() -> None:
    async def test(rig: Rig) -> None:
        rig.show(IN_SYNC)
        await rig.write(LABELLED, mesh(), identity())
        names = await rig.names()
        begun = await record(rig)
        assert (len(begun.roots), begun.signer, begun.domain, begun.callers) == (1, "", DOMAIN, True)
        assert {"a-root-ca", "a-private-key", "a.identity-trust"} <= names
        assert await who(rig) == "Mesh"

        assert await after(rig, 9) == begun
        signing = await after(rig, 10)
        assert signing.signer == signing.roots[0].fingerprint
        assert await who(rig) == "MeshIdentity"

    run(test)


def test_a_proxy_that_is_behind_holds_it_up_and_not_for_ever() -> None:
    async def test(rig: Rig) -> None:
        rig.show(BEHIND)
        await rig.write(LABELLED, mesh(), identity())

        assert (await after(rig, 59)).signer == ""
        assert (await after(rig, 60)).signer != ""

    run(test)


def test_who_is_trusted_is_published_as_a_mesh_trust_of_its_name() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(mesh(), identity())
        trust, of_identity = await published(rig), await record(rig)

        assert trust is not None
        assert (trust.trust_domain, list(trust.certificates())) == (DOMAIN, [of_identity.certificates])
        assert trust.origin is not None
        assert trust.origin.kri == "kri_mid_default___a_"

    run(test)


def _trust_of_somebody_else() -> Document:
    _, authority = new_authority()
    spec = {"trustDomain": "else.local", "caBundles": [{"type": "Pem", "pem": {"value": authority.certificates}}]}
    return Document(
        Key("MeshTrust", "default", "a"), {"type": "MeshTrust", "mesh": "default", "name": "a", "spec": spec}
    )


def test_a_mesh_trust_of_somebody_else_is_left_alone() -> None:
    theirs = _trust_of_somebody_else()

    async def test(rig: Rig) -> None:
        await rig.write(mesh(), theirs, identity())
        await rig.store.write(Delete(identity().key))
        await rig.at(2 * 86_400)

        trust = await published(rig)
        assert trust is not None
        assert trust.trust_domain == "else.local"
        assert await record(rig) == NO_TRUST

    run(test)


def test_what_an_identity_that_is_gone_signed_is_trusted_until_it_has_expired() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(mesh(), identity())
        await rig.at(60)
        await rig.store.write(Delete(identity().key))
        await rig.swept()
        kept = await after(rig, 86_400 + 60)
        domains = [bundle.domain for bundle in _security(await rig.world()).bundles]
        gone = await after(rig, 86_400 + 60 + 10)

        assert kept.roots[0].until == NOW + 86_400 + 60 + 10
        assert DOMAIN in domains
        assert gone == NO_TRUST
        assert not {name for name in await rig.names() if name.startswith("a")}

    run(test)


def test_a_mesh_trust_ends_in_one_write_with_its_record() -> None:
    """Whatever ends the process in between: nobody would look for it afterwards."""

    async def test(rig: Rig) -> None:
        await rig.write(mesh(), identity())
        await rig.at(60)
        await rig.store.write(Delete(identity().key))
        await rig.swept()
        rig.now = NOW + 2 * 86_400
        before = await rig.store.revision()
        await rig.keeper().sweep(await rig.world())

        assert await record(rig) == NO_TRUST
        assert await published(rig) is None
        assert await rig.store.revision() == before + 1

    run(test)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_mesh_trust_of_ours_whose_record_is_gone_is_deleted(*, is_written: bool) -> None:
    async def test(rig: Rig) -> None:
        await rig.write(mesh(), identity())
        without_provider = Document(identity().key, {**identity().data, "spec": {"selector": {"dataplane": {}}}})
        await rig.store.write(
            Put(without_provider) if is_written else Delete(identity().key), Delete(identity_trust_key("default", "a"))
        )
        await rig.swept()

        assert await published(rig) is None

    run(test)


def test_a_mesh_trust_that_somebody_has_just_written_is_not_overwritten() -> None:
    theirs = _trust_of_somebody_else()

    async def test(rig: Rig) -> None:
        await rig.store.write(Put(mesh()), Put(identity()))
        await rig.keeper().sweep(await rig.world())
        await rig.keeper().sweep(await rig.world())
        await rig.store.write(Delete(theirs.key))
        outdated = await rig.world()
        await rig.store.write(Put(theirs))
        await rig.keeper().sweep(outdated)

        trust = await published(rig)
        assert trust is not None
        assert trust.trust_domain == "else.local"

    run(test)


class StoreWithFolder(MemoryStore):
    """A store whose MeshTrusts are in a folder."""

    async def write(self, *writes: Put | Delete, author: Author = UNKNOWN, fence: Fence | None = None) -> int:
        if any(write.key.type == "MeshTrust" for write in writes):
            raise ReadOnly("edit it there")
        return await super().write(*writes, author=author, fence=fence)


def test_a_mesh_trust_in_a_folder_keeps_no_record_alive() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(mesh(), identity())
        await rig.at(60)
        in_folder = StoreWithFolder()
        for stored in (await rig.store.read()).stored:
            if stored.document.key != identity().key:
                await MemoryStore.write(in_folder, Put(stored.document))
        await rig.store.close()
        rig.store = in_folder
        await rig.swept()
        await rig.at(2 * 86_400)

        assert await published(rig) is not None
        assert await record(rig) == NO_TRUST

    run(test)


class BusyStore(MemoryStore):
    """A store that cannot be asked for MeshTrusts."""

    async def get(self, key: Key) -> Stored | None:
        if key.type == "MeshTrust":
            raise Unusable("is busy")
        return await super().get(key)


def test_a_store_that_cannot_be_asked_ends_no_sweep() -> None:
    async def test(rig: Rig) -> None:
        rig.store = BusyStore()
        await rig.write(mesh(), identity())

        assert (await record(rig)).roots
        assert await published(rig) is None
        await rig.store.close()

    run(test)


def _security(world: World) -> Any:
    security = security_of(world, "default")
    assert security is not None
    return security


def test_an_authority_that_is_replaced_in_its_secrets_is_rolled() -> None:
    old, new = new_authority()[0], new_authority()[0]

    async def test(rig: Rig) -> None:
        rig.show(IN_SYNC)
        await rig.write(LABELLED, mesh(), secret("our-ca", old.certificate), secret("our-key", old.key))
        await rig.write(from_secrets(insecureAllowSelfSigned=True))
        first = await after(rig, 60)
        await rig.write(secret("our-ca", new.certificate), secret("our-key", new.key))
        begun, moved = await record(rig), await after(rig, 70)

        assert (len(begun.roots), begun.signer) == (2, first.signer)
        assert moved.signer == begun.roots[1].fingerprint

    run(test)


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        (from_secrets(), "spec.provider.bundled.ca.certificate", "is self-signed"),
        (
            from_secrets("dataplane-token-signing-key-default-1", insecureAllowSelfSigned=True),
            "spec.provider.bundled.ca.privateKey",
            "the Secret `dataplane-token-signing-key-default-1` is the control plane's own, and is given to nobody",
        ),
        (identity(autogenerate={"enabled": True}), "spec.provider.bundled.autogenerate", "is self-signed"),
        (
            identity(
                ca={
                    "certificate": {"type": "File", "file": {"path": "/there/is/none"}},
                    "privateKey": {"type": "EnvVar", "envVar": {"name": "THERE_IS_NONE"}},
                }
            ),
            "spec.provider.bundled.ca.certificate",
            "`/there/is/none` cannot be read: No such file or directory",
        ),
        (
            identity(
                ca={
                    "certificate": {"type": "Secret", "secretRef": {"kind": "Secret", "name": "our-ca"}},
                    "privateKey": {"type": "EnvVar", "envVar": {"name": "THERE_IS_NONE"}},
                }
            ),
            "spec.provider.bundled.ca.privateKey",
            "`THERE_IS_NONE` is not set",
        ),
        (
            from_secrets(meshTrustCreation="Disabled", insecureAllowSelfSigned=True),
            "spec.provider.bundled.meshTrustCreation",
            "no MeshTrust for its trust domain has the certificate of its authority",
        ),
    ],
)
def test_an_authority_that_cannot_sign_is_a_finding(document: Document, path: str, words: str) -> None:
    pair = new_authority()[0]

    async def test(rig: Rig) -> None:
        await rig.store.write(Put(secret("our-ca", pair.certificate)), Put(secret("our-key", pair.key)))
        await rig.store.write(Put(secret("dataplane-token-signing-key-default-1", pair.key)))
        await rig.store.write(Put(mesh()), Put(document))
        keeper = rig.keeper()
        await rig.swept(keeper)

        finding = keeper.faults["default/a"]
        assert (finding.code, finding.path, finding.message) == ("no-authority", path, words)
        assert await record(rig) == NO_TRUST

    run(test)


def test_a_half_of_a_generated_authority_that_is_missing_is_named() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(mesh(), identity())
        await rig.store.write(Delete(identity_private_key("default", "a")))
        keeper = rig.keeper()
        await keeper.sweep(await rig.world())

        finding = keeper.faults["default/a"]
        assert finding.message == "there is no Secret default/a-private-key"
        assert finding.hint == "without it nothing can be signed"

    run(test)


def test_of_an_authority_that_cannot_sign_nothing_is_written_again_and_again() -> None:
    async def test(rig: Rig) -> None:
        await rig.write(PLAIN, identity(autogenerate={"enabled": True}))
        with structlog.testing.capture_logs() as logs:
            is_settled = await rig.keeper().sweep(await rig.world())

        assert is_settled
        assert [line["event"] for line in logs] == ["finding"]

    run(test)


def test_an_authority_that_somebody_else_trusts_signs() -> None:
    pair, authority = new_authority()
    spec = {"trustDomain": DOMAIN, "caBundles": [{"type": "Pem", "pem": {"value": authority.certificates}}]}
    trust = Document(
        Key("MeshTrust", "default", "t"), {"type": "MeshTrust", "mesh": "default", "name": "t", "spec": spec}
    )

    async def test(rig: Rig) -> None:
        await rig.write(mesh(), trust, secret("our-ca", pair.certificate), secret("our-key", pair.key))
        await rig.write(from_secrets(meshTrustCreation="Disabled", insecureAllowSelfSigned=True))
        signing = await after(rig, 60)

        assert (signing.signer, signing.domain) == (authority.fingerprint, "")
        assert await published(rig) is None

    run(test)


def test_where_nobody_else_signs_callers_wait_for_certificates_of_all() -> None:
    async def test(rig: Rig) -> None:
        rig.show(IN_SYNC, None)
        await rig.write(PLAIN, LABELLED, identity())
        without = await after(rig, 1_000)
        rig.show(IN_SYNC)
        ready = await after(rig, 1_001)

        assert without.signer != ""
        assert not without.callers
        assert ready.callers

    run(test)


def test_a_generated_authority_needs_a_place_for_its_key() -> None:
    async def test(rig: Rig) -> None:
        await rig.store.write(Put(PLAIN), Put(identity()))
        keeper = rig.keeper(FolderStore())
        await keeper.sweep(await rig.world())

        assert "KOGUMA_REGISTRATIONS" in keeper.faults["default/a"].hint

    run(test)


@pytest.mark.parametrize("was_there", [True, False])
def test_in_a_folder_what_signed_before_signs_at_once(*, was_there: bool) -> None:
    """There the record is lost with the process, and proxies show what they have."""
    pair = new_authority()[0]
    parts = mesh(), secret("our-ca", pair.certificate), secret("our-key", pair.key)
    ours = from_secrets(insecureAllowSelfSigned=True)
    written = dict[Key, Document | None]()

    async def test(rig: Rig) -> None:
        sources = TrustSources(lambda path: b"", lambda: rig.now, forgets=True)
        unfollowed: Any = None
        keeper = TrustKeeper(LocalTrust(written.__setitem__), unfollowed, rig, sources)
        if not was_there:
            await keeper.sweep(World.of(parts, KINDS))
        await keeper.sweep(World.of([*parts, ours], KINDS))

        document = written[identity_trust_key("default", "a")]
        assert document is not None
        assert bool(record_in(World.of([document], KINDS).get(document.key)).signer) is was_there

    run(test)


# --- trust domains of other meshes ---

PROD: Final = Document(Key("Mesh", "", "prod"), {"type": "Mesh", "name": "prod"})


def of_domain(name: str, domain: str, provider: dict[str, Any] | None = None) -> Document:
    """A MeshIdentity of a mesh with a trust domain."""
    key = Key("MeshIdentity", name, "a")
    spec = {
        "selector": {"dataplane": {}},
        "spiffeID": {"trustDomain": domain},
        "provider": {"type": "Bundled", "bundled": provider or GENERATED},
    }
    return Document(key, {"type": key.type, "mesh": key.mesh, "name": "a", "spec": spec})


def inline(pair: KeyPair) -> dict[str, Any]:
    ca = {
        field: {"type": "InsecureInline", "insecureInline": {"value": text.decode()}}
        for field, text in (("certificate", pair.certificate), ("privateKey", pair.key))
    }
    return {"ca": ca, "insecureAllowSelfSigned": True}


@pytest.mark.parametrize(
    ("of_prod", "domain", "whose"),
    [
        ((), "prod", "Mesh prod"),
        ((of_domain("prod", "prod.here.local"),), "prod.here.local", "MeshIdentity prod/a"),
    ],
)
def test_nobody_signs_for_the_trust_domain_of_another_mesh(
    of_prod: tuple[Document, ...], domain: str, whose: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.write(PLAIN, PROD, *of_prod, of_domain("default", domain))
        keeper = rig.keeper()
        await keeper.sweep(await rig.world())

        assert set(keeper.faults) == {"default/a"}
        assert keeper.faults["default/a"].path == "spec.spiffeID.trustDomain"
        assert f"`{domain}`, which is the trust domain of {whose}" in keeper.faults["default/a"].message
        assert await record(rig) == NO_TRUST

        for _ in range(3):
            await keeper.sweep(await rig.world())
        await assert_that_nothing_is_written(rig, keeper)

    run(test)


async def assert_that_nothing_is_written(rig: Rig, keeper: TrustKeeper) -> None:
    """Neither a revision nor the attempt at one, such as to delete what is not there, which the log would tell."""
    revision = await rig.store.revision()
    with structlog.testing.capture_logs() as logs:
        await keeper.sweep(await rig.world())
    assert await rig.store.revision() == revision
    assert "trust.changed" not in {line["event"] for line in logs}


@pytest.mark.parametrize("makes_trust", [True, False])
def test_who_turns_to_a_refused_domain_is_written_once_and_forgotten_when_all_has_expired(*, makes_trust: bool) -> None:
    provider = {**GENERATED, "meshTrustCreation": "Enabled" if makes_trust else "Disabled"}

    async def test(rig: Rig) -> None:
        await rig.write(PLAIN, PROD, of_domain("default", "default.here.local"))
        await rig.at(100)
        assert (await record(rig)).signer

        await rig.write(of_domain("default", "prod", provider))  # which fails if it never comes to an end
        for seconds in (101, 10_000, 400 * 86_400):
            await rig.at(seconds)
            await assert_that_nothing_is_written(rig, rig.keeper())

    run(test)


def test_two_meshes_have_a_trust_domain_together_where_they_have_one_authority() -> None:
    pair, authority = new_authority()

    async def test(rig: Rig) -> None:
        await rig.write(PLAIN, PROD)
        await rig.write(*(of_domain(name, "prod.here.local", inline(pair)) for name in ("prod", "default")))
        keeper = rig.keeper()
        await keeper.sweep(await rig.world())

        assert not keeper.faults
        assert [root.fingerprint for root in (await record(rig)).roots] == [authority.fingerprint]

    run(test)


def test_who_signed_already_does_not_sign_for_the_trust_domain_of_another_mesh() -> None:
    """Its authority is in memory, and its record says that it signs."""

    async def test(rig: Rig) -> None:
        in_default = AuthorityRef("MeshIdentity", "default", "a")
        signers = Signers(lambda: rig.now, AuthoritySources(read_file, lambda _name: None), lambda: rig.now)
        await rig.write(PLAIN, PROD, of_domain("prod", "prod.here.local"), of_domain("default", "mine.local"))
        await rig.at(60)
        assert isinstance(signers.of(await rig.world(), in_default), Authority)

        await rig.write(of_domain("default", "prod.here.local"))
        assert isinstance(signers.of(await rig.world(), in_default), Violation)

    run(test)

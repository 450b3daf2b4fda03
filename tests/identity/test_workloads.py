"""MeshIdentities: which of several counts for a proxy, what it is called by then, and whom its mesh trusts."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from cp.identity.identities import AuthorityRef, answers_with_tls, identity_of, workload_ids
from cp.identity.security import security_of
from cp.identity.trust import TrustedRoot, TrustRecord, pem_blocks, record_document
from cp.identity.workloads import domain_of, spiffe_id, workload_identities
from cp.model.document import Document
from cp.model.names import Key
from cp.model.secret_names import identity_trust_key
from cp.model.violation import Violation
from cp.policies import discover, kinds
from cp.resources.resource import Resource
from cp.resources.secret import Secret
from cp.resources.spiffe import is_spiffe_id
from cp.resources.world import World
from cp.translate.view.mtls import inbound_tls

KINDS: Final = kinds(discover())
GENERATED: Final = {"type": "Bundled", "bundled": {"autogenerate": {"enabled": True}}}
PEM: Final = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
MTLS: Final = {"enabledBackend": "ca-1", "backends": [{"name": "ca-1", "type": "builtin"}]}
WEB: Final = {"kuma.io/workload": "web"}
DOMAIN: Final = "default.default.mesh.local"


def document(kind: str, name: str, data: dict[str, Any], labels: dict[str, str] | None = None) -> Document:
    mesh = "" if kind == "Mesh" else "default"
    envelope = {"type": kind, **({"mesh": mesh} if mesh else {}), "name": name, "labels": labels or {}}
    return Document(Key(kind, mesh, name), {**envelope, **data})


def mesh(*, with_mtls: bool = True) -> Document:
    return document("Mesh", "default", {"mtls": MTLS} if with_mtls else {})


def proxy(labels: dict[str, str], name: str = "web-1") -> Document:
    inbound = [{"port": 8080, "tags": {"kuma.io/service": "web"}}]
    return document("Dataplane", name, {"networking": {"address": "127.0.0.1", "inbound": inbound}}, labels)


def identity(name: str, labels: dict[str, str] | None, *, path: str | None = None, **spec: Any) -> Document:
    selector = {} if labels is None else {"selector": {"dataplane": {"matchLabels": labels}}}
    spiffe_id = {} if path is None else {"spiffeID": {"path": path}}
    provider = {"provider": GENERATED}
    return document("MeshIdentity", name, {"spec": {**provider, **selector, **spiffe_id, **spec}})


def signing(
    name: str, *, signer: str = "a", callers: bool = False, roots: Iterable[str] = "a", domain: str = DOMAIN
) -> Document:
    """The record of a MeshIdentity whose authority signs already."""
    record = TrustRecord(
        roots=tuple(
            TrustedRoot(fingerprint=root, certificate=PEM.format(root), backend=name, since=0.0, lifetime=1.0)
            for root in roots
        ),
        signer=signer,
        callers=callers,
        domain=domain,
    )
    return record_document(identity_trust_key("default", name), record)


def world(*documents: Document) -> World:
    made = World.of(documents, KINDS)
    assert not [str(finding) for finding in made.findings if finding.severity == "error"]
    return made


def found(made: World, kind: str = "Dataplane", name: str = "web-1") -> Resource:
    resource = made.get(Key(kind, "default", name))
    assert resource is not None
    return resource


@pytest.mark.parametrize(
    ("selectors", "labels", "best"),
    [
        ({"v1": {"app": "web", "version": "v1"}, "all": {}, "web": {"app": "web"}}, {"app": "web"}, "web"),
        (
            {"v1": {"app": "web", "version": "v1"}, "all": {}, "web": {"app": "web"}},
            {"app": "web", "version": "v1"},
            "v1",
        ),
        ({"other": {"app": "other"}, "all": {}}, {"app": "web"}, "all"),
        ({"b": {"app": "web"}, "a": {"app": "web"}}, {"app": "web"}, "a"),
        (
            {"b": {"app": "web", "version": "v1"}, "a": {"app": "web", "env": "prod"}},
            {"app": "web", "version": "v1", "env": "prod"},
            "a",
        ),
        ({"none": None}, {"app": "web"}, None),
        ({"stamped": {"kuma.io/zone": "default"}, "all": {}}, {}, "stamped"),
        ({}, {"app": "web"}, None),
    ],
)
def test_the_most_specific_identity_counts(
    selectors: dict[str, dict[str, str] | None], labels: dict[str, str], best: str | None
) -> None:
    documents = [identity(name, wanted) for name, wanted in selectors.items()]
    made = world(mesh(), proxy(labels), *documents)

    chosen = workload_identities(made, "default").selecting(found(made))

    assert (chosen[0].name if chosen else None) == best


def test_a_proxy_has_the_id_of_the_identity_that_selects_it_and_no_other_name() -> None:
    spec = {"bundled": {"autogenerate": {"enabled": True}, "certificateParameters": {"expiry": "1h"}}}
    made = world(mesh(), proxy(WEB), identity("a", {}, provider={"type": "Bundled", **spec}), signing("a"))

    who = identity_of(made, found(made))

    assert who is not None
    assert who.uris == (f"spiffe://{DOMAIN}/workload/web",)
    assert who.authority == AuthorityRef("MeshIdentity", "default", "a")
    assert (who.lifetime, who.key) == (3600.0, "EC")


def test_an_identity_whose_authority_does_not_sign_yet_is_not_used_and_is_expected() -> None:
    made = world(mesh(), proxy(WEB), identity("a", {}), signing("a", signer=""))

    who = identity_of(made, found(made))

    assert who is not None
    assert who.authority.kind == "Mesh"
    assert workload_ids(made, found(made)) == (f"spiffe://{DOMAIN}/workload/web",)


def test_the_one_before_goes_on_until_a_more_specific_one_signs() -> None:
    pieces = mesh(), proxy(WEB), identity("a", {}, path="/a"), identity("b", WEB, path="/b"), signing("a")
    before = world(*pieces)

    after = before.next({(record := signing("b")).key: record}, 1)

    assert [_path(before), _path(after)] == ["/a", "/b"]
    assert workload_ids(before, found(before)) == (f"spiffe://{DOMAIN}/a", f"spiffe://{DOMAIN}/b")


def _path(made: World) -> str:
    who = identity_of(made, found(made))
    assert who is not None
    return who.uris[0].removeprefix(f"spiffe://{DOMAIN}")


def test_without_the_label_that_the_path_needs_a_proxy_keeps_the_name_of_before() -> None:
    made = world(mesh(), proxy({"app": "web"}), identity("a", {}), signing("a"))
    who = identity_of(made, found(made))

    fault = spiffe_id(found(made, "MeshIdentity", "a"), found(made))

    assert who is not None
    assert who.authority.kind == "Mesh"
    assert isinstance(fault, Violation)
    assert fault.message == "has no label `kuma.io/workload`, and `spec.spiffeID.path` asks for it"
    assert workload_ids(made, found(made)) == ()


@pytest.mark.parametrize(("value", "is_id"), [("", False), ("..", False), ("a.b", True)])
def test_a_label_that_cannot_stand_in_an_id_gives_none(value: str, is_id: bool) -> None:
    dataplane = Document(proxy({}).key, {**proxy({}).data, "labels": {"kuma.io/workload": value}})
    read = World.of([mesh(), dataplane, identity("a", {})], KINDS)
    if read.get(dataplane.key) is None:  # no label of Kubernetes' has such a value
        assert not is_id
        return

    assert isinstance(spiffe_id(found(read, "MeshIdentity", "a"), found(read)), str) is is_id


def test_the_zone_of_a_trust_domain_is_that_of_the_identity() -> None:
    labelled = document("MeshIdentity", "b", {"spec": {}}, {"kuma.io/zone": "east"})
    made = world(mesh(), identity("a", {}), labelled)

    assert domain_of(found(made, "MeshIdentity", "a")) == DOMAIN
    assert domain_of(found(made, "MeshIdentity", "b")) == "default.east.mesh.local"


def test_an_identity_that_asks_for_a_label_that_it_lacks_selects_nobody() -> None:
    templates = {"trustDomain": '{{ label "team" }}.local', "path": "/a"}
    made = world(mesh(), proxy(WEB), identity("a", {}, spiffeID=templates), signing("a"))

    assert workload_identities(made, "default").identities == ()


def test_an_identity_without_a_provider_is_expected_and_gives_nobody_a_certificate() -> None:
    without = document("MeshIdentity", "a", {"spec": {"selector": {"dataplane": {}}}})
    made = world(mesh(), proxy(WEB), without, signing("a"))
    who = identity_of(made, found(made))

    assert who is not None
    assert who.authority.kind == "Mesh"
    assert workload_ids(made, found(made)) == (f"spiffe://{DOMAIN}/workload/web",)


def test_an_identity_of_a_provider_that_is_not_served_does_nothing() -> None:
    made = world(mesh(), proxy(WEB), identity("a", {}, provider={"type": "Spire", "spire": {}}), signing("a"))

    assert workload_ids(made, found(made)) == ()


def test_what_does_not_change_is_the_same_object_in_the_next_world() -> None:
    before = world(mesh(), proxy(WEB), identity("a", {}), signing("a"))
    other = proxy(WEB, "web-2")
    who, names, security = identity_of(before, found(before)), workload_ids(before, found(before)), _bundles(before)

    after = before.next({other.key: other}, 1)

    assert identity_of(after, found(after)) is who
    assert workload_ids(after, found(after)) is names
    assert _bundles(after) == security
    assert workload_ids(after, found(after, name="web-2")) is names


# whom a mesh trusts


def _bundles(made: World) -> dict[str, list[str]] | None:
    security = security_of(made, "default")
    if security is None:
        return None
    return {bundle.domain: pem_blocks(bundle.certificates) for bundle in security.bundles}


def trust(name: str, domain: str, *certificates: str) -> Document:
    bundles = [{"type": "Pem", "pem": {"value": text}} for text in certificates]
    return document("MeshTrust", name, {"spec": {"trustDomain": domain, "caBundles": bundles}})


def root() -> str:
    return trustme.CA().cert_pem.bytes().decode()


def test_each_trust_domain_has_the_certificates_of_all_its_trusts_once() -> None:
    first, second = root(), root()
    trusts = [trust("a", "one.local", first), trust("b", "one.local", second + first), trust("c", "two.local", second)]
    made = world(mesh(), *trusts)

    assert _bundles(made) == {"one.local": [first, second], "two.local": [second]}


def test_what_stands_between_certificates_is_not_served() -> None:
    first = root()
    made = world(mesh(), trust("a", "one.local", f"# a comment\r\n{first}".replace("\n", "\r\n")))

    assert _bundles(made) == {"one.local": [first]}


def test_the_authority_of_an_identity_is_trusted_before_it_signs() -> None:
    made = world(mesh(), identity("a", {}), signing("a", signer="", roots="xy"))

    assert _bundles(made) == {DOMAIN: [PEM.format("x"), PEM.format("y")]}


def test_a_record_without_a_domain_is_trusted_for_none() -> None:
    made = world(mesh(), identity("a", {}), signing("a", domain=""))

    assert _bundles(made) == {}


def test_an_identity_that_is_gone_is_trusted_while_there_is_a_record() -> None:
    assert _bundles(world(mesh(with_mtls=False), signing("a"))) == {DOMAIN: [PEM.format("a")]}


def test_a_mesh_without_mtls_has_security_when_an_authority_of_an_identity_is_trusted() -> None:
    plain = mesh(with_mtls=False)

    assert security_of(world(plain, trust("a", "one.local", root())), "default") is None
    assert security_of(world(plain, identity("a", {})), "default") is None
    security = security_of(world(plain, identity("a", {}), signing("a", signer="")), "default")
    assert security is not None
    assert not security.is_permissive


@pytest.mark.parametrize(
    ("documents", "answers"),
    [
        ([mesh()], True),
        ([mesh(with_mtls=False)], False),
        ([mesh(with_mtls=False), identity("a", {}), signing("a")], False),
        ([mesh(with_mtls=False), identity("a", {}), signing("a", callers=True)], True),
        ([mesh(with_mtls=False), identity("a", {}), signing("a", signer="", callers=True)], False),
        ([mesh(with_mtls=False), identity("a", {"x": "y"}), signing("a", callers=True)], False),
    ],
)
def test_callers_speak_tls_with_a_proxy_that_has_a_certificate(documents: list[Document], answers: bool) -> None:
    made = world(proxy(WEB), *documents)

    assert answers_with_tls(made, found(made)) is answers


@pytest.mark.parametrize(
    ("documents", "takes_plain_text"),
    [
        ([mesh()], False),
        ([mesh(), identity("a", {}), signing("a")], False),
        ([mesh(with_mtls=False), identity("a", {}), signing("a")], True),
        ([mesh(with_mtls=False), identity("a", {}), signing("a", callers=True)], False),
        ([mesh(with_mtls=False), identity("a", {}), signing("a", signer="", callers=True)], None),
    ],
)
def test_a_proxy_takes_plain_text_for_as_long_as_callers_speak_it(
    documents: list[Document], *, takes_plain_text: bool | None
) -> None:
    made = world(proxy(WEB), *documents)

    tls = inbound_tls(made, found(made))

    assert (None if tls is None else tls.is_permissive) is takes_plain_text


def test_nobody_is_called_in_plain_text_again_because_another_identity_takes_over() -> None:
    both = identity("all", {}), signing("all", callers=True), identity("web", WEB), signing("web")
    made = world(mesh(with_mtls=False), proxy(WEB), *both)
    who, tls = identity_of(made, found(made)), inbound_tls(made, found(made))

    assert who is not None
    assert who.authority.name == "web"
    assert answers_with_tls(made, found(made))
    assert tls is not None
    assert not tls.is_permissive


# any mesh

LABELS: Final = ("app", "version", "kuma.io/workload")


def labels_of(chance: Random) -> dict[str, str]:
    return {name: chance.choice("ab") for name in LABELS if chance.random() < 0.5}


def random_world(chance: Random) -> World:
    identities = [identity(f"i{index}", labels_of(chance)) for index in range(chance.randrange(5))]
    records = [signing(f"i{index}") for index in range(5) if chance.random() < 0.5]
    proxies = [proxy(labels_of(chance), f"p{index}") for index in range(4)]
    return world(mesh(with_mtls=chance.random() < 0.7), *identities, *records, *proxies)


def expected(made: World, dataplane: Resource) -> tuple[str | None, list[str]]:
    """The identity of a proxy and its names, by looking at everything."""
    labels = dataplane.selectable_labels
    selecting = sorted(
        (-len(wanted), identity.name)
        for identity in made.table("MeshIdentity", "default")
        if (wanted := identity.spec.matched_labels).items() <= labels.items()
    )
    has_name = "kuma.io/workload" in labels
    signers = [name for _, name in selecting if made.get(identity_trust_key("default", name)) is not None]
    mesh = made.mesh("default")
    assert mesh is not None
    by_mesh = "ca-1" if mesh.spec.authority is not None else None
    names = [f"spiffe://{DOMAIN}/workload/{labels['kuma.io/workload']}"] if has_name and selecting else []
    return signers[0] if signers and has_name else by_mesh, names


@given(st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_in_any_mesh_the_identity_is_the_one_that_a_plain_search_finds(chance: Random) -> None:
    made = random_world(chance)
    for dataplane in made.table("Dataplane", "default"):
        who, names = identity_of(made, dataplane), workload_ids(made, dataplane)

        assert (who.authority.name if who is not None else None, list(names)) == expected(made, dataplane)
        assert all(map(is_spiffe_id, names))


def test_no_record_is_read_from_a_secret_of_somebody_else() -> None:
    key = identity_trust_key("default", "a")
    made = world(mesh(), proxy(WEB), identity("a", {}), Document(key, {**_secret(key), "data": "eA=="}))

    assert isinstance(found(made, "Secret", key.name).spec, Secret)
    assert not workload_identities(made, "default").identities[0].signs


def _secret(key: Key) -> dict[str, str]:
    return {"type": key.type, "mesh": key.mesh, "name": key.name}

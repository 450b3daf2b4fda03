"""The rights that a write takes beyond the right to the kind: by what changes, and by the Secrets that it names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import httpx
import msgspec
import pytest
import structlog

from cp.access.rights_file import rights_of
from cp.api.authentication import AccessControl
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from cp.store.memory import MemoryStore
from cp.store.port import Delete, Put
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, Api, FixedState, Unit
from tests.api.samples import dataplane, timeout
from tests.api.test_rollouts import StoredState, begin
from tests.identity.meshes import new_authority, trusting

FILE: Final = """\
rights:
  - {groups: [team], may: [write], meshes: [default]}
  - {groups: [team], may: [write], meshes: [default], kinds: [MeshIdentity, Mesh]}
  - {groups: [unnamed], may: [write], meshes: [default]}
  - groups: [named]
    may: [write]
    meshes: [default]
    kinds: [Dataplane, Mesh, MeshAccessLog, MeshExternalService, MeshGateway, MeshHealthCheck, MeshPassthrough,
      MeshProxyPatch, MeshTLS, MeshTrafficPermission]
  - {groups: [keepers], may: [write], meshes: [default], kinds: [Secret, Mesh, MeshIdentity, MeshExternalService]}
"""
TEAM: Final = {"authorization": f"Bearer {forge.token({**forge.USER, 'Groups': ['team']})}"}
KEEPER: Final = {"authorization": f"Bearer {forge.token({**forge.USER, 'Groups': ['keepers']})}"}
ADMIN: Final[dict[str, str]] = {}
Write = Callable[[Api, dict[str, Any], dict[str, str]], httpx.Response]


def outside(key: str = "our-key", port: int = 443) -> dict[str, Any]:
    verification = {"clientCert": {"file": "/etc/client.pem"}, "clientKey": {"secret": key}}
    spec = {
        "match": {"type": "HostnameGenerator", "port": 443, "protocol": "tcp"},
        "endpoints": [{"address": "example.com", "port": port}],
        "tls": {"enabled": True, "verification": verification},
    }
    return {"type": "MeshExternalService", "mesh": "default", "name": "outside", "spec": spec}


def mesh(**key: Any) -> dict[str, Any]:
    conf = {"cert": {"inlineString": "x"}, "key": key or {"secret": "our-key"}}
    backends = [{"name": "ca", "type": "provided", "conf": conf}]
    return {"type": "Mesh", "name": "default", "mtls": {"enabledBackend": "ca", "backends": backends}}


def identity(**key: Any) -> dict[str, Any]:
    of_secret = {"type": "Secret", "secretRef": {"kind": "Secret", "name": "our-key"}}
    certificate = {"type": "InsecureInline", "insecureInline": {"value": "x"}}
    bundled = {"ca": {"certificate": certificate, "privateKey": key or of_secret}}
    spec = {"provider": {"type": "Bundled", "bundled": bundled}}
    return {"type": "MeshIdentity", "mesh": "default", "name": "identity", "spec": spec}


def put(api: Api, document: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    kind = KINDS[document["type"]]
    path = f"{'' if kind.is_global else '/meshes/default'}/{kind.plural}/{document['name']}"
    return api.request("PUT", path, json=document, headers=headers, peer=_peer(headers))


def apply(api: Api, document: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    body = {"resources": [{"text": msgspec.json.encode(document).decode()}]}
    return api.post("/_apply", json=body, headers=headers, peer=_peer(headers))


def _peer(headers: dict[str, str]) -> str:
    return "192.0.2.1" if headers else "127.0.0.1"


@pytest.fixture
def api(start: Unit) -> Api:
    rights = rights_of(FILE, "access.yaml", KINDS, ADMINS)
    control = AccessControl(lambda: rights, clock=lambda: forge.NOW)
    world = World.of(forge.signing_keys(), KINDS)
    return start(state=FixedState(world), access=control).with_mesh()


writing = pytest.mark.parametrize("write", [put, apply])


@writing
@pytest.mark.parametrize("document", [outside(), mesh(), identity()], ids=lambda document: str(document["type"]))
def test_who_names_a_secret_has_to_be_one_who_writes_secrets(api: Api, write: Write, document: dict[str, Any]) -> None:
    refused = write(api, document, TEAM)

    assert refused.status_code == 403
    assert "may not write Secret in mesh `default`" in refused.json()["detail"]
    assert "names the Secret `our-key`" in refused.json()["detail"]
    assert write(api, document, KEEPER).is_success
    assert write(api, document, ADMIN).is_success


@writing
def test_what_a_document_names_already_is_nobody_s_concern_again(api: Api, write: Write) -> None:
    assert write(api, outside(), ADMIN).is_success

    assert write(api, outside(port=8443), TEAM).is_success
    assert write(api, outside("another-key", port=8443), TEAM).status_code == 403


FILE_SOURCE: Final = {"type": "File", "file": {"path": "/etc/prod.key"}}
VARIABLE: Final = {"type": "EnvVar", "envVar": {"name": "PROD_KEY"}}


@writing
@pytest.mark.parametrize(
    ("document", "changed", "named"),
    [
        (mesh(file="/etc/prod.key"), mesh(file="/etc/other.key"), "/etc/prod.key"),
        (identity(**FILE_SOURCE), identity(**VARIABLE), "/etc/prod.key"),
        (identity(**VARIABLE), identity(**FILE_SOURCE), "PROD_KEY"),
    ],
)
def test_only_an_administrator_names_what_is_on_the_control_plane_s_machine(
    api: Api, write: Write, document: dict[str, Any], changed: dict[str, Any], named: str
) -> None:
    """It is read with the control plane's rights: somebody in one mesh would sign with the files of another."""
    refused = write(api, document, KEEPER)

    assert refused.status_code == 403
    assert f"names `{named}` on the control plane's machine, as only administrators may" in refused.json()["detail"]
    assert write(api, document, ADMIN).is_success
    assert write(api, {**document, "labels": {"a": "b"}}, KEEPER).is_success
    assert write(api, changed, KEEPER).status_code == 403


@writing
def test_a_file_that_envoy_reads_is_on_its_own_machine(api: Api, write: Write) -> None:
    document = outside()
    document["spec"]["tls"]["verification"] |= {"clientKey": {"file": "/etc/client.key"}}

    assert write(api, document, TEAM).is_success


@writing
@pytest.mark.parametrize("name", ["default.ca-trust", "frontend.identity-trust"])
@pytest.mark.parametrize("headers", [KEEPER, ADMIN], ids=["keeper", "administrator"])
def test_nobody_writes_whom_proxies_trust(api: Api, write: Write, name: str, headers: dict[str, str]) -> None:
    """A root that somebody adds to it stays for as long as it says."""
    document = {"type": "Secret", "mesh": "default", "name": name, "data": "e30="}
    answer = write(api, document, headers)

    assert answer.status_code == 403
    assert "says whom proxies trust, and the control plane alone writes it" in answer.json()["detail"]
    assert write(api, {**document, "name": "other.ca-trust"}, headers).is_success


def test_only_an_administrator_deletes_whom_proxies_trust(api: Api) -> None:
    records = trusting(new_authority()[1])
    asyncio.run(api.store.write(Put(records)))
    path = f"/meshes/default/secrets/{records.key.name}"

    assert api.delete(path, headers=KEEPER, peer="192.0.2.1").status_code == 403
    assert api.delete(path).is_success


# --- powers that a right has to name ----------------------------------------------------------------------------------


def bearer(claims: dict[str, Any], **changes: Any) -> dict[str, str]:
    return {"authorization": f"Bearer {forge.token({**claims, **changes})}"}


UNNAMED: Final = bearer(forge.USER, Groups=["unnamed"])
NAMED: Final = bearer(forge.USER, Groups=["named"])


def policy(kind: str, **spec: Any) -> dict[str, Any]:
    return {"type": kind, "mesh": "default", "name": "p", "spec": {"targetRef": {"kind": "Mesh"}, **spec}}


def log_to(path: str) -> dict[str, Any]:
    backend = {"type": "File", "file": {"path": path, "format": {"type": "Plain", "plain": "* * * * * root sh /x"}}}
    return policy("MeshAccessLog", to=[{"targetRef": {"kind": "Mesh"}, "default": {"backends": [backend]}}])


def variables(text: str) -> dict[str, Any]:
    backend = {"type": "Tcp", "tcp": {"address": "192.0.2.7:9", "format": {"type": "Plain", "plain": text}}}
    return policy("MeshAccessLog", to=[{"targetRef": {"kind": "Mesh"}, "default": {"backends": [backend]}}])


def health(path: str) -> dict[str, Any]:
    default = {"interval": "1s", "tcp": {}, **({"eventLogPath": path} if path else {})}
    return policy("MeshHealthCheck", to=[{"targetRef": {"kind": "Mesh"}, "default": default}])


def socket(address: str) -> dict[str, Any]:
    spec = {"match": {"type": "HostnameGenerator", "port": 80, "protocol": "http"}, "endpoints": [{"address": address}]}
    return {"type": "MeshExternalService", "mesh": "default", "name": "p", "spec": spec}


PATCH: Final = policy(
    "MeshProxyPatch", default={"appendModifications": [{"httpFilter": {"operation": "AddFirst", "value": "name: x"}}]}
)
ALLOW: Final = {"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}
PERMISSION: Final = policy("MeshTrafficPermission", **{"from": [ALLOW]})
OWN_AUTHORITY: Final = {
    "type": "Mesh",
    "name": "default",
    "mtls": {
        "enabledBackend": "mine",
        "backends": [
            {
                "name": "mine",
                "type": "provided",
                "conf": {"cert": {"inlineString": "mine"}, "key": {"inlineString": "mine"}},
            }
        ],
    },
}
LOGS: Final = {"type": "Mesh", "name": "default", "logging": {"backends": [{"name": "f", "type": "file", "conf": {}}]}}
GRAVE: Final = [
    PATCH,
    PERMISSION,
    policy("MeshTLS", rules=[{"default": {"mode": "Permissive"}}]),
    policy("MeshPassthrough", default={"passthroughMode": "All"}),
    OWN_AUTHORITY,
    {"type": "Mesh", "name": "default", "networking": {"outbound": {"passthrough": True}}},
    {"type": "Mesh", "name": "default", "policyEngine": "Legacy"},
    log_to("/home/envoy/.profile"),
    variables("%REQ(a)% %ENVIRONMENT(KUMA_DATAPLANE_RUNTIME_TOKEN)%"),
    health("/etc/cron.d/x"),
    socket("unix:///var/run/docker.sock"),
    dataplane(),
]


def name_of(document: dict[str, Any]) -> str:
    return f"{document['type']} {','.join(document.keys() - {'type', 'name', 'mesh', 'spec'})}"


@writing
@pytest.mark.parametrize("document", GRAVE, ids=name_of)
def test_a_grave_write_takes_a_right_that_names_the_kind(api: Api, write: Write, document: dict[str, Any]) -> None:
    refused = write(api, document, UNNAMED)

    assert refused.status_code == 403, refused.text
    assert "as access.yaml:4 names no `kinds`" in refused.json()["detail"]
    assert write(api, document, NAMED).is_success


@pytest.mark.parametrize(
    "document", [log_to("/dev/stdout"), variables("%REQ(a)%"), health(""), socket("192.0.2.7")], ids=name_of
)
@writing
def test_other_fields_take_no_name(api: Api, write: Write, document: dict[str, Any]) -> None:
    if document["type"] == "MeshExternalService":
        document["spec"]["endpoints"][0]["port"] = 80

    assert write(api, document, UNNAMED).is_success
    assert write(api, {**document, "labels": {"team": "a"}}, UNNAMED).is_success


ALLOWED: Final = {
    "type": "Mesh",
    "name": "default",
    "constraints": {"dataplaneProxy": {"restrictions": [{"tags": {"a": "b"}}]}},
}


@pytest.mark.parametrize("document", [PERMISSION, ALLOWED, OWN_AUTHORITY], ids=name_of)
def test_a_deletion_takes_a_right_that_names_the_kind(api: Api, document: dict[str, Any]) -> None:
    """A deleted Deny lets clients in, and a Mesh that was deleted can be made without what it had."""
    put(api, document, ADMIN).raise_for_status()
    path = "/meshes/default" if document["type"] == "Mesh" else "/meshes/default/meshtrafficpermissions/p"

    refused = api.delete(path, headers=UNNAMED, peer="192.0.2.1")

    assert refused.status_code == 403, refused.text
    assert api.delete(path, headers=NAMED, peer="192.0.2.1").is_success


@writing
def test_a_mesh_is_edited_without_its_name_where_nothing_grave_changes(api: Api, write: Write) -> None:
    mesh = {**OWN_AUTHORITY, "networking": {"outbound": {"passthrough": False}}, "constraints": {}}
    write(api, mesh, ADMIN).raise_for_status()

    tracing = {"backends": [{"name": "z", "type": "zipkin", "conf": {"url": "http://zipkin:9411/api"}}]}
    assert write(api, {**mesh, "tracing": tracing, "labels": {"team": "a"}}, UNNAMED).is_success
    for removed in ("mtls", "networking"):
        assert write(api, {name: value for name, value in mesh.items() if name != removed}, UNNAMED).status_code == 403


def test_pruning_takes_the_rights_of_deletions(api: Api) -> None:
    body = {"resources": [resource(PERMISSION), resource(timeout())], "managedBy": "team"}
    api.post("/_apply", json=body).raise_for_status()
    left = {"resources": [resource(timeout())], "managedBy": "team", "prune": True}

    assert api.post("/_apply", json=left, headers=UNNAMED, peer="192.0.2.1").status_code == 403
    assert api.post("/_apply?dryRun=true", json=left, headers=UNNAMED, peer="192.0.2.1").status_code == 403
    both = bearer(forge.USER, Groups=["unnamed", "named"])
    assert api.post("/_apply", json=left, headers=both, peer="192.0.2.1").is_success


def resource(document: dict[str, Any]) -> dict[str, str]:
    return {"text": msgspec.json.encode(document).decode()}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [(log_to("/root/.profile"), log_to("/dev/stdout")), (OWN_AUTHORITY, {"type": "Mesh", "name": "default"})],
    ids=["file", "mtls"],
)
def test_a_rollback_takes_the_rights_of_what_it_brings_back(
    api: Api, earlier: dict[str, Any], later: dict[str, Any]
) -> None:
    revision = int(put(api, earlier, ADMIN).headers["koguma-revision"])
    put(api, later, ADMIN).raise_for_status()
    body = {"revision": revision, "mesh": "default"}

    for query in ("", "?dryRun=true"):
        refused = api.post(f"/_rollback{query}", json=body, headers=UNNAMED, peer="192.0.2.1")
        assert refused.status_code == 403, refused.text
        assert "names no `kinds`" in refused.json()["detail"]
    assert api.post("/_rollback", json=body, headers=NAMED, peer="192.0.2.1").is_success


# --- proxies that receive keys ----------------------------------------------------------------------------------------


def gateway(*services: str, port: int = 443, **tls: Any) -> dict[str, Any]:
    certificates = [tls or {"secret": "our-key"}]
    listener = {"port": port, "protocol": "HTTPS", "tls": {"mode": "TERMINATE", "certificates": certificates}}
    selectors = [{"match": {"kuma.io/service": service, "zone": "a"}} for service in services or ("edge",)]
    return {
        "type": "MeshGateway",
        "mesh": "default",
        "name": "edge",
        "selectors": selectors,
        "conf": {"listeners": [listener]},
    }


@writing
@pytest.mark.parametrize("changed", [gateway("mine"), gateway("edge", "mine"), gateway("*")])
def test_selecting_other_proxies_takes_the_right_to_their_keys(api: Api, write: Write, changed: dict[str, Any]) -> None:
    write(api, gateway(), ADMIN).raise_for_status()

    refused = write(api, changed, NAMED)

    assert refused.status_code == 403
    assert "may not write Secret in mesh `default`" in refused.json()["detail"]
    assert "more proxies would receive the keys of MeshGateway default/edge" in refused.json()["detail"]
    assert write(api, changed, bearer(forge.USER, Groups=["named", "keepers"])).is_success


@writing
def test_selecting_fewer_proxies_takes_no_right_to_keys(api: Api, write: Write) -> None:
    write(api, gateway("*", "other"), ADMIN).raise_for_status()

    assert write(api, gateway("edge", "other", port=8443), NAMED).is_success
    assert write(api, gateway("edge"), NAMED).is_success
    assert write(api, gateway("*", "other"), NAMED).status_code == 403


def test_a_rollback_of_selectors_takes_the_right_to_keys(api: Api) -> None:
    revision = int(put(api, gateway("edge", "old"), ADMIN).headers["koguma-revision"])
    put(api, gateway(), ADMIN).raise_for_status()
    body = {"revision": revision, "only": [{"type": "MeshGateway", "name": "edge"}]}

    refused = api.post("/_rollback", json=body, headers=NAMED, peer="192.0.2.1")

    assert (refused.status_code, "would receive the keys" in refused.json()["detail"]) == (403, True)
    both = bearer(forge.USER, Groups=["named", "keepers"])
    assert api.post("/_rollback", json=body, headers=both, peer="192.0.2.1").is_success


def built_in(service: str = "edge") -> dict[str, Any]:
    tags = {"kuma.io/service": service, "zone": "a"}
    return {
        "type": "Dataplane",
        "mesh": "default",
        "name": "web-1",
        "networking": {"address": "192.0.2.1", "gateway": {"type": "BUILTIN", "tags": tags}},
    }


@pytest.fixture
def edge(start: Unit) -> Callable[..., Api]:
    """An API of a mesh with a MeshGateway that has keys, and with one that has none."""

    def api(**changes: Any) -> Api:
        plain = {**gateway("plain"), "name": "plain", "conf": {"listeners": [{"port": 80, "protocol": "HTTP"}]}}
        documents = [Document(Key("MeshGateway", "default", each["name"]), each) for each in (gateway(), plain)]
        mesh = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
        world = World.of([*forge.signing_keys(), mesh, *documents], KINDS)
        rights = replace(rights_of(FILE, "access.yaml", KINDS, ADMINS), **changes)
        control = AccessControl(lambda: rights, clock=lambda: forge.NOW)
        made = start(state=FixedState(world), access=control).with_mesh()
        for document in documents:
            made.run(made.store.write(Put(document)))
        return made

    return api


@writing
def test_a_dataplane_that_receives_keys_takes_the_right_to_them(edge: Callable[..., Api], write: Write) -> None:
    api = edge()

    refused = write(api, built_in(), NAMED)

    assert refused.status_code == 403
    text = "the proxy of Dataplane default/web-1 would receive the keys of MeshGateway default/edge"
    assert text in refused.json()["detail"]
    assert write(api, built_in("plain"), NAMED).is_success
    assert write(api, built_in(), NAMED).status_code == 403
    assert write(api, built_in(), bearer(forge.USER, Groups=["named", "keepers"])).is_success


def test_a_user_who_registers_a_proxy_that_receives_keys_needs_the_right_to_them(edge: Callable[..., Api]) -> None:
    """Where proxies need no tokens, whoever may write Dataplanes asks for their bootstraps."""
    api = edge()
    body = {"mesh": "default", "name": "web-1", "dataplaneResource": json.dumps(built_in())}
    plain = {**body, "dataplaneResource": json.dumps(built_in("plain"))}

    refused = api.post("/bootstrap", json=body, headers=NAMED, peer="192.0.2.1")

    assert (refused.status_code, "would receive the keys of MeshGateway default/edge" in refused.text) == (403, True)
    assert api.post("/bootstrap", json=plain, headers=NAMED, peer="192.0.2.1").is_success


class RacedStore(MemoryStore):
    """A store into which somebody else writes just before the next write."""

    def __init__(self) -> None:
        super().__init__()
        self.earlier: list[Put] = []

    async def write(self, *writes: Put | Delete, **options: Any) -> int:
        while self.earlier:
            await super().write(self.earlier.pop())
        return await super().write(*writes, **options)


@writing
def test_a_write_is_judged_by_the_document_that_it_replaces(start: Unit, write: Write) -> None:
    """Somebody narrowed the selectors meanwhile: to write the wider ones takes the right to the keys again."""
    rights = rights_of(FILE, "access.yaml", KINDS, ADMINS)
    control = AccessControl(lambda: rights, clock=lambda: forge.NOW)
    store = RacedStore()
    api = start(store=store, state=FixedState(World.of(forge.signing_keys(), KINDS)), access=control).with_mesh()
    put(api, gateway("edge", "mine"), ADMIN).raise_for_status()
    store.earlier.append(Put(Document(Key("MeshGateway", "default", "edge"), gateway())))

    refused = write(api, gateway("edge", "mine", port=8443), NAMED)

    assert (refused.status_code, "more proxies would receive the keys" in refused.text) == (403, True)


def register(api: Api, document: dict[str, Any], **claims: Any) -> httpx.Response:
    headers = {**bearer(forge.DATAPLANE, **claims), "koguma-owner": "run-1"}
    return api.request("PUT", "/meshes/default/dataplanes/web-1", json=document, headers=headers, peer="192.0.2.1")


@pytest.mark.parametrize("claims", [{}, {"Name": ""}, {"Tags": {"zone": ["a"]}}], ids=["name", "mesh", "tag"])
def test_a_proxy_takes_keys_with_a_token_that_names_its_service(
    edge: Callable[..., Api], claims: dict[str, Any]
) -> None:
    api = edge()

    refused = register(api, built_in(), **claims)

    assert refused.status_code == 403
    assert "it names no `kuma.io/service`, and the proxy would receive the keys of MeshGateway edge" in refused.text
    assert register(api, built_in("plain"), **claims).is_success
    assert register(api, built_in(), Tags={"kuma.io/service": ["edge"]}).is_success


# --- an upgrade -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", GRAVE, ids=name_of)
def test_unnamed_writes_are_tolerated_and_logged_where_the_operator_says_so(
    edge: Callable[..., Api], document: dict[str, Any]
) -> None:
    api = edge(tolerates_unnamed=True)

    with structlog.testing.capture_logs() as lines:
        assert apply(api, document, UNNAMED).is_success

    (line,) = (line for line in lines if line["event"] == "access.tolerated")
    assert (line["log_level"], line["user"]) == ("warning", "jane")
    assert "access.yaml:4 names no `kinds`" in line["reason"]


def test_what_had_to_be_named_before_is_not_tolerated(edge: Callable[..., Api]) -> None:
    api = edge(tolerates_unnamed=True)
    secret = {"type": "Secret", "mesh": "default", "name": "s", "data": "e30="}

    assert apply(api, secret, UNNAMED).status_code == 403
    assert apply(api, identity(), UNNAMED).status_code == 403
    assert apply(api, outside(), UNNAMED).status_code == 403
    assert apply(api, PATCH, bearer(forge.USER, Groups=["nobody"])).status_code == 403


def test_keys_for_more_proxies_are_tolerated_alike(edge: Callable[..., Api]) -> None:
    api = edge(tolerates_unnamed=True)

    with structlog.testing.capture_logs() as lines:
        assert apply(api, gateway("mine"), UNNAMED).is_success
        assert register(api, built_in()).is_success

    reasons = [line["reason"] for line in lines if line["event"] == "access.tolerated"]
    assert ["more proxies would receive" in reasons[0], "names no `kuma.io/service`" in reasons[1]] == [True, True]


# --- rollouts ---------------------------------------------------------------------------------------------------------


def test_a_rollout_takes_the_rights_of_what_it_proposes(start: Unit) -> None:
    rights = rights_of(FILE, "access.yaml", KINDS, ADMINS)
    store = MemoryStore()
    state = KeyedState(store)
    access = AccessControl(lambda: rights, clock=lambda: forge.NOW)
    api = start(store=store, state=state, access=access).with_mesh()
    for document in forge.signing_keys():
        api.run(store.write(Put(document)))
    order = {"resources": [resource(log_to("/root/.profile"))], "rollout": {"steps": "1,100%"}}

    assert api.post("/_apply", json=order, headers=UNNAMED, peer="192.0.2.1").status_code == 403
    begin(api, log_to("/root/.profile")).raise_for_status()
    assert command(api, "pause", UNNAMED).is_success
    assert command(api, "continue", UNNAMED).status_code == 403
    assert command(api, "continue", NAMED).is_success
    assert command(api, "abort", UNNAMED).is_success


class KeyedState(StoredState):
    """A state whose World has the keys of tokens from the start."""

    @property
    def loaded_world(self) -> World:
        return World.of(forge.signing_keys(), KINDS)


def command(api: Api, action: str, headers: dict[str, str]) -> httpx.Response:
    path = "/meshes/default/_rollout"
    return api.post(path, json={"action": action}, headers=headers, peer="192.0.2.1")

"""A proxy gets its bootstrap configuration for its token, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import structlog.testing
import trustme

from cp.access.tries import MOST_TRIES
from cp.ads.admission import Doorkeeper
from cp.api.authentication import AccessControl
from cp.api.collaborators import BootstrapDefaults
from cp.serving.server_certificate import CertificateFiles, ServedCertificate, ServerCertificate, read
from tests.access import forge
from tests.access.test_receivers import gateway, proxy
from tests.api.conftest import RIGHTS, Api, FixedState, Unit
from tests.api.samples import dataplane
from tests.test_server_certificate import given

WEB: Final = {"mesh": "default", "name": "web-1"}
DB: Final = {"mesh": "default", "name": "db-1"}


def defaults(hosts: Sequence[tuple[str, int]] = (), **changes: Any) -> BootstrapDefaults:
    return BootstrapDefaults(5678, hosts, "127.0.0.1", 9901, admin_unix_socket=True, **changes)


@pytest.fixture
def locked(start: Unit) -> Api:
    """An API whose proxies need tokens, with web-1, db-1 and another mesh."""
    return with_door(start, lambda door: defaults(doorkeeper=door))


@pytest.fixture
def without_admin(start: Unit) -> Api:
    """The same, whose proxies need no tokens, but rights: callers from this machine have none."""
    access = AccessControl(lambda: RIGHTS, localhost_is_admin=False, clock=lambda: forge.NOW)
    return with_door(start, lambda door: defaults(optional_doorkeeper=door), access=access)


def with_door(start: Unit, behind: Callable[[Doorkeeper], BootstrapDefaults], **changes: Any) -> Api:

    async def loaded() -> None:
        """The World is there."""

    world = forge.world(*forge.signing_keys(), forge.secret(REVOCATIONS, b"revoked", "default"), gateway({}))
    door = Doorkeeper(lambda: world, loaded, lambda: forge.NOW)
    opened = start(state=FixedState(world)).with_mesh("default", "other")
    opened.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    opened.put("/meshes/default/dataplanes/db-1", dataplane("db-1", service="db")).raise_for_status()
    opened.put("/meshes/other/dataplanes/web-1", dataplane(mesh="other")).raise_for_status()
    return start(store=opened.store, for_proxies=behind(door), state=FixedState(world), **changes)


REVOCATIONS: Final = "dataplane-token-revocations-default"


def token(**changes: Any) -> str:
    return forge.token({**forge.DATAPLANE, **changes})


ANY_WEB: Final = token(Name="", Tags={"kuma.io/service": ["web"]})


def asked(api: Api, body: dict[str, Any], bearer: str = "", **headers: str) -> httpx.Response:
    sent = {"authorization": f"Bearer {bearer}"} if bearer else {}
    return api.post("/bootstrap", json=body, headers=sent | headers)


@pytest.mark.parametrize("service", ["web", None])
def test_a_proxy_with_its_token_is_served(locked: Api, service: str | None) -> None:
    good = token(Tags={"kuma.io/service": [service]} if service else {})

    for answer in (asked(locked, WEB, good), asked(locked, {**WEB, "dataplaneToken": good})):
        assert answer.status_code == 200, answer.text
        assert json.loads(answer.text)["node"]["id"] == "default.web-1"


CROSSINGS: Final[dict[str, tuple[dict[str, Any], str, int]]] = {
    "no token": (WEB, "", 401),
    "words": ({**WEB, "dataplaneToken": "let me in"}, "", 401),
    "the token of another proxy": ({**DB, "dataplaneToken": token()}, "", 403),
    "of the proxy of that name in another mesh": (
        {"mesh": "other", "name": "web-1", "dataplaneToken": token()},
        "",
        403,
    ),
    "of a proxy that is not there": ({"mesh": "default", "name": "no", "dataplaneToken": token()}, "", 403),
    "expired": ({**WEB, "dataplaneToken": token(exp=forge.NOW)}, "", 401),
    "not yet valid": ({**WEB, "dataplaneToken": token(nbf=forge.NOW + 9)}, "", 401),
    "revoked": ({**WEB, "dataplaneToken": token(jti="revoked")}, "", 401),
    "of a person": ({**WEB, "dataplaneToken": forge.token(forge.USER)}, "", 401),
    "of a zone ingress": ({**WEB, "dataplaneToken": token(Type="ingress")}, "", 403),
    "of another service": ({**DB, "dataplaneToken": ANY_WEB}, "", 403),
    "of this service, with a Dataplane of another": (
        {"mesh": "default", "name": "new-1", "dataplaneToken": ANY_WEB}
        | {"dataplaneResource": json.dumps(dataplane("new-1", service="db"))},
        "",
        403,
    ),
    "of this service, over the Dataplane of another": (
        {**DB, "dataplaneToken": ANY_WEB, "dataplaneResource": json.dumps(dataplane("db-1"))},
        "",
        403,
    ),
    "of no service, with a Dataplane that receives keys": (
        {"mesh": "default", "name": "p", "dataplaneToken": token(Name="p")}
        | {"dataplaneResource": json.dumps(proxy({}).data)},
        "",
        403,
    ),
    "a Dataplane under another name": (
        {**WEB, "dataplaneToken": token(), "dataplaneResource": json.dumps(dataplane("db-1"))},
        "",
        422,
    ),
}


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_whoever_has_no_good_token_gets_nothing_and_changes_nothing(locked: Api, crossing: str) -> None:
    body, bearer, status = CROSSINGS[crossing]
    before = locked.get("/meshes/default/dataplanes").text

    with structlog.testing.capture_logs() as logs:
        answer = asked(locked, body, bearer)

    assert answer.status_code == status, answer.text
    assert locked.get("/meshes/default/dataplanes").text == before
    assert "node" not in answer.json()
    secret = body.get("dataplaneToken", "")
    assert not secret or (secret not in answer.text and secret not in str(logs))


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_optional_token_opens_its_own_dataplane_alone(without_admin: Api, crossing: str) -> None:
    body, bearer, status = CROSSINGS[crossing]

    assert asked(without_admin, body, bearer).status_code == status
    answer = asked(without_admin, WEB, token())
    assert (answer.status_code, answer.text if answer.is_error else "") == (200, "")
    assert asked(without_admin, {**WEB, "dataplaneToken": token()}).status_code == 200
    assert asked(without_admin, DB, token()).status_code == 403


def test_optional_token_registers_its_dataplane(without_admin: Api) -> None:
    wanted = {"mesh": "default", "name": "new-1", "dataplaneResource": json.dumps(dataplane("new-1"))}

    assert asked(without_admin, wanted, token(Name="new-1")).status_code == 200


def test_missing_optional_token_is_named_with_its_option(without_admin: Api) -> None:
    answer = asked(without_admin, WEB)

    assert answer.status_code == 401
    assert "koguma dp: --dataplane-token-file" in answer.json()["detail"]
    assert "KUMA_DP_SERVER_AUTHN_DP_PROXY_TYPE" in answer.json()["detail"]


def test_of_proxies_that_are_refused_again_and_again_a_few_short_lines_tell(locked: Api) -> None:
    with structlog.testing.capture_logs() as logs:
        for _ in range(15):
            assert asked(locked, {"mesh": "m" * 50_000, "name": "web-1"}).status_code == 401

    lines = [entry for entry in logs if entry["event"] == "bootstrap.refused"]
    assert len(lines) == 10
    assert len(str(lines)) < 20_000


def test_of_agents_that_wait_for_a_dataplane_a_few_short_lines_tell(start: Unit) -> None:
    api = start().with_mesh()
    with structlog.testing.capture_logs() as logs:
        for _ in range(15):
            answer = asked(api, {"mesh": "default", "name": "n" * 50_000}, accept="application/json")
            assert answer.status_code == 404

    lines = [entry for entry in logs if entry["event"] == "bootstrap.not_found"]
    assert len(lines) == 10
    assert len(str(lines)) < 20_000


def test_an_address_that_shows_many_bad_tokens_is_told_to_wait_and_good_ones_are_heard(locked: Api) -> None:
    for number in range(MOST_TRIES):
        assert asked(locked, {**WEB, "dataplaneToken": f"guess {number}"}).status_code == 401

    guess = {"json": {**WEB, "dataplaneToken": "one more"}}
    refused = locked.post("/bootstrap", **guess)
    elsewhere = locked.post("/bootstrap", peer="192.0.2.9", **guess)

    assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
    assert elsewhere.status_code == 401
    assert asked(locked, WEB, token()).status_code == 200


@pytest.mark.parametrize("secret", ["", "the same"])
def test_one_bad_token_that_is_shown_again_and_none_at_all_are_no_guesses(locked: Api, secret: str) -> None:
    for _ in range(MOST_TRIES + 1):
        assert asked(locked, {**WEB, "dataplaneToken": secret}).status_code == 401

    assert asked(locked, WEB, "a guess").status_code == 401


def test_a_good_token_for_another_proxy_is_no_guess(locked: Api) -> None:
    for number in range(MOST_TRIES):
        assert asked(locked, {**DB, "dataplaneToken": token(jti=f"id-{number}")}).status_code == 403

    assert asked(locked, WEB, "a guess").status_code == 401


def test_nothing_is_told_of_others_to_a_proxy_whose_dataplane_is_not_there(locked: Api) -> None:
    answer = asked(locked, {"mesh": "default", "name": "web-2", "dataplaneToken": token(Name="")})

    assert answer.status_code == 404
    assert "web-1" not in answer.text


def test_a_proxy_registers_what_its_token_is_for(locked: Api) -> None:
    body = {"mesh": "default", "name": "new-1", "dataplaneResource": json.dumps(dataplane("new-1")), "owner": "a"}

    assert asked(locked, body, ANY_WEB).status_code == 200
    assert locked.get("/meshes/default/dataplanes/new-1").status_code == 200


# --- TLS ------------------------------------------------------------------------------------------------------------


def over_tls(start: Unit, certificate: ServedCertificate) -> Api:
    api = start(for_proxies=defaults(certificate=lambda: certificate), hosts=["cp.example", "other.example"])
    api.with_mesh().put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    return api


def context(answer: httpx.Response) -> tuple[str, dict[str, Any]]:
    """The server name that the Envoy says, and how it verifies who answers."""
    answer.raise_for_status()
    cluster, _ = json.loads(answer.text)["staticResources"]["clusters"]
    tls = cluster["transportSocket"]["typedConfig"]
    return tls.get("sni", ""), tls["commonTlsContext"]["validationContext"]


def served(folder: Path, *names: str) -> ServedCertificate:
    return ServerCertificate.begun(given(folder, *names)).current


def test_the_authority_and_the_name_that_was_called_are_in_it(start: Unit, tmp_path: Path) -> None:
    certificate = served(tmp_path, "cp.example")

    name, trust = context(asked(over_tls(start, certificate), WEB, host="cp.example:5681"))

    assert (name, trust["trustedCa"]["inlineString"]) == ("cp.example", certificate.trusted)
    assert trust["matchTypedSubjectAltNames"] == [{"sanType": "DNS", "matcher": {"exact": "cp.example"}}]


def test_an_address_is_no_server_name_and_is_verified_as_an_address(start: Unit, tmp_path: Path) -> None:
    name, trust = context(asked(over_tls(start, served(tmp_path, "10.0.0.7")), WEB, host="10.0.0.7:5681"))

    assert name == ""
    assert trust["matchTypedSubjectAltNames"] == [{"sanType": "IP_ADDRESS", "matcher": {"exact": "10.0.0.7"}}]


def test_what_the_proxy_was_told_to_trust_comes_first(start: Unit, tmp_path: Path) -> None:
    files = given(tmp_path, "cp.example")
    api = over_tls(start, read(CertificateFiles(files.certificate, files.key, None)))
    told = (tmp_path / "ca.crt").read_text()

    _, trust = context(asked(api, {**WEB, "caCert": told}, host="cp.example"))

    assert trust["trustedCa"] == {"inlineString": told}


def test_a_proxy_may_trust_the_authorities_of_several_control_planes(start: Unit, tmp_path: Path) -> None:
    api = over_tls(start, served(tmp_path, "cp.example"))
    told = trustme.CA().cert_pem.bytes().decode() + (tmp_path / "ca.crt").read_text()

    _, trust = context(asked(api, {**WEB, "caCert": told}, host="cp.example"))

    assert trust["trustedCa"] == {"inlineString": told}


def test_without_an_authority_of_our_own_it_trusts_what_its_machine_does(start: Unit, tmp_path: Path) -> None:
    files = given(tmp_path, "cp.example")
    api = over_tls(start, read(CertificateFiles(files.certificate, files.key, None)))

    _, trust = context(asked(api, {**WEB, "systemCaPath": "/ca.pem"}, host="cp.example"))

    assert trust["trustedCa"] == {"filename": "/ca.pem"}


def test_a_name_that_is_not_in_the_certificate_is_told_with_those_that_are(start: Unit, tmp_path: Path) -> None:
    answer = asked(over_tls(start, served(tmp_path, "cp.example", "10.0.0.7")), WEB, host="other.example:5681")

    assert answer.status_code == 400
    assert "is not for `other.example`, but for 10.0.0.7, cp.example; call it by one of these" in answer.text


@pytest.mark.parametrize(("names", "expected"), [(("localhost",), "localhost"), (("127.0.0.1",), "")])
def test_this_machine_is_called_as_the_certificate_has_it(
    start: Unit, tmp_path: Path, names: tuple[str, ...], expected: str
) -> None:
    name, _ = context(asked(over_tls(start, served(tmp_path, *names)), WEB, host="localhost:5681"))

    assert name == expected


def test_each_of_several_control_planes_is_verified_as_itself(start: Unit, tmp_path: Path) -> None:
    api = over_tls(start, served(tmp_path, "localhost"))

    answer = asked(api, {**WEB, "controlPlanes": ["localhost", "other.example"]}, host="localhost:5681")

    cluster, _ = json.loads(answer.text)["staticResources"]["clusters"]
    assert [match["name"] for match in cluster["transportSocketMatches"]] == ["localhost", "other.example"]
    assert context(answer)[0] == "localhost"


def test_a_certificate_has_to_be_for_one_of_the_control_planes_of_the_settings(start: Unit, tmp_path: Path) -> None:
    def answer(*hosts: str) -> httpx.Response:
        settings = defaults(certificate=lambda: served(tmp_path, "cp.example"), hosts=[(host, 0) for host in hosts])
        api = start(for_proxies=settings).with_mesh()
        api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
        return asked(api, WEB, host="localhost:5681")

    assert answer("other.example", "cp.example").is_success
    assert "is not for `other.example`" in answer("other.example", "third.example").text


@pytest.mark.parametrize("sort", ["leaf", "other"])
def test_what_is_no_authority_of_the_certificate_is_told_with_where_to_find_it(
    start: Unit, tmp_path: Path, sort: str
) -> None:
    certificate = served(tmp_path, "cp.example")
    wrong = certificate.chain.decode() if sort == "leaf" else trustme.CA().cert_pem.bytes().decode()

    answer = asked(over_tls(start, certificate), {**WEB, "caCert": wrong}, host="cp.example")

    assert answer.status_code == 400
    assert "CA:TRUE" in answer.text if sort == "leaf" else "did not sign" in answer.text
    assert "koguma-cp-ca.crt" in answer.text


def test_a_token_in_a_file_is_in_no_configuration(locked: Api) -> None:
    answer = asked(locked, {**WEB, "dataplaneTokenSecretPath": "/work/dataplane-token.json"}, token())

    bootstrap = json.loads(answer.raise_for_status().text)
    assert token() not in answer.text
    assert "initialMetadata" not in json.dumps(bootstrap)
    assert "/work/dataplane-token.json" in json.dumps(bootstrap["staticResources"]["clusters"][0])


def test_a_grpc_client_is_told_of_tls_and_of_its_own_files(start: Unit, tmp_path: Path) -> None:
    certificate = served(tmp_path, "cp.example")
    api = start(for_proxies=defaults(certificate=lambda: certificate), hosts=["cp.example"]).with_mesh()
    document = dataplane() | {"labels": {"koguma.io/client": "grpc"}}
    api.put("/meshes/default/dataplanes/web-1", document).raise_for_status()
    files = {"caCertPath": "/ca.crt", "dataplaneTokenPath": "/token"}

    with_files = asked(api, {**WEB, "proxyType": "grpc", **files}, host="cp.example")
    without = asked(api, {**WEB, "proxyType": "grpc"}, host="cp.example")

    (server,) = with_files.raise_for_status().json()["xds_servers"]
    assert server["channel_creds"] == [{"type": "tls", "config": {"ca_certificate_file": "/ca.crt"}}]
    assert server["call_creds"] == [{"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}]
    (server,) = without.raise_for_status().json()["xds_servers"]
    assert (server["channel_creds"], "call_creds" in server) == ([{"type": "tls", "config": {}}], False)


def changes_by_hand(api: Api) -> list[str]:
    """The ways of the changes that people have made, as the history tells them, the newest first."""
    items = api.get("/_history?registrations=false").raise_for_status().json()["items"]
    return [item["origin"].partition(" from ")[0] for item in items]


def test_a_person_does_not_pass_for_a_run_of_a_proxy(locked: Api) -> None:
    """What proxies register is left out of timelines, and shown to no Envoy first."""
    path, before = "/meshes/default/dataplanes/web-1", len(changes_by_hand(locked))
    locked.put(path, dataplane(service="admin"), koguma_owner="run-1").raise_for_status()
    locked.post(f"{path}/_readiness", json={"owner": "run-1", "ready": True}).raise_for_status()
    locked.put("/meshes/default/dataplanes/new", dataplane("new"), koguma_owner="run-2").raise_for_status()
    locked.delete("/meshes/default/dataplanes/new", headers={"koguma-owner": "run-2"}).raise_for_status()

    assert changes_by_hand(locked)[: -before or None] == ["DELETE", "PUT", "POST", "PUT"]

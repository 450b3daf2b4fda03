"""Who is let in where: every route, asked by everybody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

import httpx
import pytest
import structlog
from starlette.routing import Match, Route

from cp.access.rights import ADMIN, Rights, Subjects
from cp.access.rights_file import rights_of
from cp.access.tries import MOST_TRIES, FailedTries
from cp.api.authentication import AccessControl
from cp.api.http import create_api, create_diagnostics
from cp.api.requirements import REQUIREMENTS, requirements_of
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.world import World
from cp.serving.delivery import ChangeProgress
from tests.access import forge
from tests.api.conftest import ADMINS, KINDS, RIGHTS, Api, FixedState, NobodyThere, Unit, no_metrics
from tests.api.samples import TIMEOUT_YAML, dataplane, timeout

FILE: Final = """\
rights:
  - groups: [team]
    may: [read, write]
    meshes: [default]
  - groups: [team]
    may: [write]
    meshes: [default]
    kinds: [Dataplane]
  - groups: [writers]
    may: [write]
    kinds: [Secret, MeshTimeout]
"""
OF_TEAM: Final = rights_of(FILE, "access.yaml", KINDS, ADMINS)

JANE: Final = forge.token({**forge.USER, "Groups": []})
OF_ADMIN: Final = forge.token({**forge.USER, "Name": "root", "Groups": [ADMIN]})
OF_MEMBER: Final = forge.token({**forge.USER, "Groups": ["team"]})
OF_WRITER: Final = forge.token({**forge.USER, "Groups": ["writers"]})
EXPIRED: Final = forge.token({**forge.USER, "Groups": [ADMIN], "exp": forge.NOW - 1})
FORGED: Final = forge.token({**forge.USER, "Groups": [ADMIN]}, key=forge.private_key(9))
OF_PROXY: Final = forge.token({**forge.DATAPLANE, "Name": "web-1"})

BODY: Final = {"content-type": "application/json"}
_ONE: Final = "/meshes/default/dataplanes/web-1"


class Asked(NamedTuple):
    """A request, and those who are let in: Anybody, whoever Holds a token, the Team of the mesh, the proxy's token."""

    method: str
    path: str
    let_in: str
    data: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


ASKED: Final = (
    Asked("GET", "/", "AHTP"),
    Asked("GET", "/gui", "AHTP"),
    Asked("GET", "/gui/fleet", "AHTP"),
    Asked("GET", "/gui/assets/page.js", "AHTP"),
    Asked("GET", "/healthy", "AHTP"),
    Asked("GET", "/health", "AHTP"),
    Asked("GET", "/ready", "AHTP"),
    Asked("GET", "/who-am-i", "AHTP"),
    Asked("POST", "/bootstrap", "T", {"mesh": "default", "name": "nobody"}),
    Asked("POST", "/bootstrap", "", {"mesh": "other", "name": "nobody"}),
    Asked("POST", "/tokens/dataplane", "", {"mesh": "default", "validFor": "1h"}),
    Asked("POST", "/tokens/zone", "", {"zone": "here", "validFor": "1h"}),
    Asked("POST", "/tokens/user", "", {"name": "eve", "groups": [ADMIN], "validFor": "1h"}),
    Asked("GET", "/config", "H"),
    Asked("GET", "/_resources", "H"),
    Asked("GET", "/policies", "H"),
    Asked("GET", "/metrics", "H"),
    Asked("GET", "/_instances", "H"),
    Asked("POST", "/_instances/_ask", "A"),
    Asked("GET", "/_prometheus/targets", "HT"),
    Asked("GET", "/_lint", "HT"),
    Asked("GET", "/meshes/default/_lint", "HT"),
    Asked("GET", "/meshes/other/_lint", "H"),
    Asked("GET", "/_delivery", "HT"),
    Asked("GET", "/_delivery?resource=MeshTimeout/other/slow", "H"),
    Asked("POST", "/_delivery", "HTP", {}),
    Asked("POST", "/_delivery", "H", {"resources": ["MeshTimeout/other/slow"]}),
    Asked("GET", "/_fleet", "HT"),
    Asked("GET", "/_fleet?mesh=other", "H"),
    Asked("GET", "/_feed?wait=0s", "HT"),
    Asked("GET", "/_changes", "HT"),
    Asked("GET", "/meshes/default/_policies", "HT"),
    Asked("GET", "/meshes/other/_policies", "H"),
    Asked("GET", "/meshes/default/_graph", "HT"),
    Asked("GET", "/meshes/other/_graph", "H"),
    Asked("GET", "/_history", "HT"),
    Asked("GET", "/_history?type=MeshTimeout&mesh=other&name=slow", "H"),
    Asked("GET", "/_history?type=Secret&mesh=default&name=key", ""),
    Asked("GET", "/_diff?from=0", "HT"),
    Asked("GET", "/_diff/proxies?from=0", "HT"),
    Asked("GET", "/_diff/proxies?from=0&mesh=other", "H"),
    Asked("GET", "/_diff/plan?from=0", "HT"),
    Asked("GET", "/_export", "HT"),
    Asked("GET", "/_export?reveal=true", ""),
    Asked("POST", "/_rollback?dryRun=true", "T", {"revision": 1, "mesh": "default"}),
    Asked("POST", "/_rollback?dryRun=true", "", {"revision": 0}),
    Asked("POST", "/_apply", "T", {"resources": [{"text": TIMEOUT_YAML}]}),
    Asked("POST", "/_apply?dryRun=true", "T", {"resources": [{"text": TIMEOUT_YAML}]}),
    Asked("POST", "/_apply", "", {"resources": [{"text": "type: Mesh\nname: new\n"}]}),
    Asked("POST", "/_apply", "", {"resources": [{"text": TIMEOUT_YAML.replace("default", "other")}]}),
    Asked("GET", "/_rollouts", "HT"),
    Asked("GET", "/meshes/default/_rollout", "HT"),
    Asked("GET", "/meshes/other/_rollout", "H"),
    Asked("POST", "/meshes/default/_rollout", "T", {"action": "abort"}),
    Asked("POST", "/meshes/other/_rollout", "", {"action": "abort"}),
    Asked("POST", "/validate", "HT", timeout()),
    Asked("POST", f"{_ONE}/_readiness", "TP", {"owner": "a", "ready": True}),
    Asked("POST", "/meshes/default/dataplanes/db-1/_readiness", "T", {"owner": "a", "ready": True}),
    Asked("POST", f"{_ONE}/_link", "TP"),
    Asked("POST", "/meshes/default/dataplanes/db-1/_link", "T"),
    Asked("POST", f"{_ONE}/_link/0123456789abcdef", "TP", {"answer": {}}),
    Asked("POST", "/meshes/default/dataplanes/db-1/_link/0123456789abcdef", "T", {"answer": {}}),
    Asked("GET", f"{_ONE}/_envoy/stats", "HT"),
    Asked("GET", "/meshes/other/dataplanes/web-1/_envoy/stats", "H"),
    Asked("GET", f"{_ONE}/_envoy/diff", "HT"),
    Asked("GET", f"{_ONE}/xds", "HT"),
    Asked("GET", f"{_ONE}/stats", "HT"),
    Asked("GET", f"{_ONE}/clusters", "HT"),
    Asked("PUT", f"{_ONE}/_envoy/log_level", "T", {"level": "debug"}),
    Asked("GET", f"{_ONE}/_config", "HT"),
    Asked("GET", f"{_ONE}/_rules", "HT"),
    Asked("GET", f"{_ONE}/_policies", "HT"),
    Asked("GET", f"{_ONE}/_delivery", "HT"),
    Asked("GET", f"{_ONE}/_explain", "HT"),
    Asked("GET", f"{_ONE}/_values", "HT"),
    Asked("GET", "/meshes/other/dataplanes/web-1/_config", "H"),
    Asked("GET", "/meshes/default/meshtimeouts/slow/_resources/dataplanes", "HT"),
    Asked("GET", "/meshes/default/dataplanes/_overview", "HT"),
    Asked("GET", "/meshes/default/dataplanes+insights", "HT"),
    Asked("GET", "/meshes/other/dataplanes/_overview", "H"),
    Asked("GET", f"{_ONE}/_overview", "HTP"),
    Asked("GET", "/meshes/default/dataplanes/db-1/_overview", "HT"),
    Asked("GET", "/meshes/default/dataplanes+insights/web-1", "HT"),
    Asked("GET", "/dataplanes/_overview", "HT"),
    Asked("GET", "/dataplanes+insights", "HT"),
    Asked("GET", _ONE, "HTP"),
    Asked("HEAD", _ONE, "HTP"),
    Asked("PUT", _ONE, "TP", dataplane("web-1")),
    Asked("DELETE", _ONE, "TP"),
    Asked("GET", "/meshes/default/dataplanes/db-1", "HT"),
    Asked("PUT", "/meshes/default/dataplanes/db-1", "T", dataplane("db-1")),
    Asked("DELETE", "/meshes/default/dataplanes/db-1", "T"),
    Asked("PUT", "/meshes/default/meshtimeouts/slow", "T", timeout()),
    Asked("GET", "/meshes/default/meshtimeouts/slow", "HT"),
    Asked("DELETE", "/meshes/default/meshtimeouts/slow", "T"),
    Asked("GET", "/meshes/other/meshtimeouts/slow", "H"),
    Asked("GET", "/meshes/default/secrets/key", ""),
    Asked("PUT", "/meshes/default/secrets/key", "", {}),
    Asked("GET", "/meshes/default/secrets", ""),
    Asked("GET", "/secrets", ""),
    Asked("GET", "/globalsecrets", ""),
    Asked("GET", "/globalsecrets/key", ""),
    Asked("GET", "/global-secrets/key", ""),
    Asked("PUT", "/globalsecrets/user-token-signing-key-2", "", {}),
    Asked("GET", "/meshes/default", "HT"),
    Asked("GET", "/meshes/other", "H"),
    Asked("PUT", "/meshes/default", "T", {"type": "Mesh", "name": "default"}),
    Asked("PUT", "/meshes/new", "", {"type": "Mesh", "name": "new"}),
    Asked("DELETE", "/meshes/default", "T"),
    Asked("GET", "/hostnamegenerators", "H"),
    Asked("GET", "/hostnamegenerators/x", "H"),
    Asked("GET", "/meshes/default/meshtimeouts", "HT"),
    Asked("GET", "/meshes/other/meshtimeouts", "H"),
    Asked("GET", "/meshes", "HT"),
    Asked("GET", "/meshtimeouts", "HT"),
    Asked("GET", "/zones", "HT"),
    Asked("GET", "/no-such-kind", "HT"),
)

CALLERS: Final[Mapping[str, tuple[str, str, Rights]]] = {
    "anybody": ("A", "", RIGHTS),
    "a holder": ("H", JANE, RIGHTS),
    "a holder without rights": ("none", JANE, OF_TEAM),
    "a member": ("T", OF_MEMBER, OF_TEAM),
    "a proxy": ("P", OF_PROXY, RIGHTS),
    "an administrator": ("all", OF_ADMIN, RIGHTS),
}
ALWAYS: Final = frozenset(
    {"/", "/gui", "/gui/fleet", "/gui/assets/page.js", "/healthy", "/health", "/ready", "/who-am-i", "/_instances/_ask"}
)


def documents() -> Iterator[Document]:
    yield from forge.signing_keys()
    for mesh in ("default", "other"):
        yield Document(Key("Mesh", "", mesh), {"type": "Mesh", "name": mesh})
    for name in ("web-1", "db-1"):
        yield Document(Key("Dataplane", "default", name), served(name))


def served(name: str) -> dict[str, Any]:
    return dataplane(name, service=name.partition("-")[0])


class Entrance:
    """An API that everybody calls from elsewhere, and that knows tokens."""

    def __init__(self, start: Unit) -> None:
        self.tries = FailedTries()
        self._start = start

    def api(self, rights: Rights = RIGHTS, **access: Any) -> Api:
        control = AccessControl(lambda: rights, clock=lambda: forge.NOW, tries=self.tries, **access)
        return self._start(state=FixedState(World.of(documents(), KINDS)), access=control).with_mesh("default", "other")


@pytest.fixture
def entrance(start: Unit) -> Entrance:
    return Entrance(start)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def ask(api: Api, asked: Asked, token: str = "", peer: str = "192.0.2.1", **headers: str) -> httpx.Response:
    sent = BODY | bearer(token) | {name.replace("_", "-"): value for name, value in headers.items()}
    return api.request(asked.method, asked.path, json=asked.data, headers=sent, peer=peer)


@pytest.mark.parametrize("caller", CALLERS)
def test_each_route_lets_in_whom_it_should(entrance: Entrance, caller: str) -> None:
    """One API is asked for all, as making one takes much longer than asking it."""
    sort, token, rights = CALLERS[caller]
    api, wrong = entrance.api(rights), []
    for asked in ASKED:
        is_let_in = sort == "all" or sort in asked.let_in or asked.path in ALWAYS
        refused = 403 if token else 401
        status = ask(api, asked, token).status_code
        if (status in {401, 403, 429, 500}) if is_let_in else (status != refused):
            wrong.append((str(asked), status))

    assert wrong == []


@pytest.mark.parametrize("token", [EXPIRED, FORGED, "x.y.z", " "], ids=["expired", "forged", "none", "empty"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "192.0.2.1"])
def test_a_bad_token_is_never_taken_for_none(entrance: Entrance, peer: str, token: str) -> None:
    entrance.tries = FailedTries(most=1000)
    api = entrance.api()
    for asked in ASKED:
        answer = ask(api, asked, token, peer)

        assert answer.status_code == 401, asked
        assert "invalid_token" in answer.headers["www-authenticate"]
        assert asked.method == "HEAD" or not token.strip() or token not in answer.text


def test_every_route_is_asked(api: Api) -> None:
    routes = [route for route in create_api(api.collaborators, no_metrics).routes if isinstance(route, Route)]
    asked = {(asked.method, _route_of(routes, asked)) for asked in ASKED}
    every = {(method, route.path) for route in routes for method in (route.methods or set()) - {"HEAD"}}
    of_diagnostics = create_diagnostics(api.collaborators, no_metrics).routes
    known = every | {("GET", route.path) for route in of_diagnostics if isinstance(route, Route)}

    assert every - asked == set()
    assert set(REQUIREMENTS) == known


def _route_of(routes: list[Route], asked: Asked) -> str:
    scope = {"type": "http", "method": asked.method, "path": asked.path.partition("?")[0]}
    return next(route.path for route in routes if route.matches(scope)[0] is Match.FULL)


def test_a_route_that_nobody_decided_about_is_not_made() -> None:
    with pytest.raises(LookupError):
        requirements_of("/new", {"GET", "HEAD"})
    with pytest.raises(LookupError):
        requirements_of("/config", {"GET", "DELETE"})


# --- where a request comes from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_who_calls_from_this_machine_is_its_administrator(entrance: Entrance, peer: str) -> None:
    assert entrance.api().get("/who-am-i", peer=peer).json() == {
        "name": "mesh-system:admin",
        "groups": ["mesh-system:admin", "mesh-system:authenticated"],
    }


@pytest.mark.parametrize("peer", ["192.0.2.1", "10.0.0.1", "::ffff:192.0.2.1", "fe80::1", "localhost", ""])
def test_who_calls_from_elsewhere_is_nobody_whatever_the_headers_say(entrance: Entrance, peer: str) -> None:
    headers = {"host": "127.0.0.1", "x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1"}

    answer = entrance.api().get("/who-am-i", peer=peer, headers=headers)

    assert answer.json() == {"name": "mesh-system:anonymous", "groups": ["mesh-system:unauthenticated"]}


@pytest.mark.parametrize(
    "header", ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"]
)
def test_what_a_proxy_on_this_machine_forwards_is_not_from_here(entrance: Entrance, header: str) -> None:
    answer = entrance.api().get("/meshes", headers={header: "127.0.0.1"})

    assert answer.status_code == 401


def test_callers_from_here_are_nobody_where_the_operator_says_so(entrance: Entrance) -> None:
    control = AccessControl(lambda: RIGHTS, clock=lambda: forge.NOW, localhost_is_admin=False)
    api = entrance._start(state=FixedState(World.of(documents(), KINDS)), access=control)

    assert api.get("/meshes").status_code == 401
    assert api.get("/meshes", headers=bearer(JANE)).status_code == 200


def test_everybody_may_do_everything_where_authentication_is_off(entrance: Entrance) -> None:
    api = entrance.api(is_on=False)

    assert api.get("/globalsecrets", peer="192.0.2.1").status_code == 200
    assert api.get("/globalsecrets", peer="192.0.2.1", headers=bearer(FORGED)).status_code == 200


def test_a_proxy_asks_for_its_bootstrap_with_a_token_or_where_proxies_are_trusted(start: Unit) -> None:
    """The handler asks for the token of a proxy itself, where it has to: see test_bootstrap_door.py."""
    state, access = FixedState(World.of(documents(), KINDS)), AccessControl(lambda: RIGHTS)
    asked = Asked("POST", "/bootstrap", "", {"mesh": "default", "name": "nobody"})

    assert ask(start(state=state, access=access), asked).status_code == 401
    assert ask(start(state=state, access=access, trusts_proxies=True), asked, "raw token").status_code == 422


def test_a_right_to_make_tokens_is_for_the_mesh_that_it_names(entrance: Entrance) -> None:
    text = "rights: [{groups: [team], may: [write], meshes: [default], kinds: [DataplaneToken]}]"
    api = entrance.api(rights_of(text, "access.yaml", KINDS, ADMINS))

    def status(mesh: str) -> int:
        body = {"mesh": mesh, "validFor": "1h"}
        return ask(api, Asked("POST", "/tokens/dataplane", "", body), OF_MEMBER).status_code

    assert (status("default"), status("other")) == (200, 403)


def test_a_token_says_who_its_holder_is(entrance: Entrance) -> None:
    answer = entrance.api().get("/who-am-i", headers=bearer(OF_MEMBER), peer="192.0.2.1")

    assert answer.json() == {"name": "jane", "groups": ["team", "mesh-system:authenticated"]}


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", JANE, f"Token {JANE}", ""])
def test_only_a_bearer_token_is_a_token(entrance: Entrance, header: str) -> None:
    answer = entrance.api().get("/who-am-i", headers={"authorization": header})

    assert answer.status_code == 401
    assert "Authorization: Bearer" in answer.json()["detail"]


def test_two_tokens_are_none(entrance: Entrance) -> None:
    headers = [("authorization", f"Bearer {OF_ADMIN}"), ("authorization", f"Bearer {JANE}")]

    assert entrance.api().get("/who-am-i", headers=headers).status_code == 401


def test_a_revoked_token_opens_nothing_from_the_next_request_on(start: Unit) -> None:
    revoked = forge.secret("user-token-revocations", b"id-1")
    state = FixedState(World.of((*documents(), revoked), KINDS))
    api = start(state=state, access=AccessControl(lambda: RIGHTS, clock=lambda: forge.NOW))

    answer = api.get("/meshes", headers=bearer(JANE))

    assert (answer.status_code, "revoked" in answer.text) == (401, True)


def test_no_token_is_judged_before_the_store_was_read(start: Unit) -> None:
    class Starting(FixedState):
        @property
        def loaded_world(self) -> World:
            return None  # type: ignore[return-value]

    api = start(state=Starting(World.of((), KINDS)))

    answer = api.get("/meshes", headers=bearer(JANE))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


# --- what may be seen and written -------------------------------------------------------------------------------------


def test_a_list_over_meshes_has_what_the_caller_may_read(entrance: Entrance) -> None:
    api = entrance.api(OF_TEAM)
    for mesh in ("default", "other"):
        api.put(f"/meshes/{mesh}/meshtimeouts/slow", timeout(mesh=mesh)).raise_for_status()
        api.put(f"/meshes/{mesh}/dataplanes/web-1", dataplane("web-1", mesh=mesh)).raise_for_status()

    for path, count in (("/meshtimeouts", 1), ("/meshes", 1), ("/dataplanes", 1), ("/dataplanes/_overview", 1)):
        page = api.get(path, headers=bearer(OF_MEMBER)).json()
        assert (page["total"], len(page["items"])) == (count, count), path
        assert {item.get("mesh", item["name"]) for item in page["items"]} == {"default"}
        assert api.get(path).json()["total"] == 2


def test_many_resources_at_once_take_an_administrator(monkeypatch: pytest.MonkeyPatch, entrance: Entrance) -> None:
    monkeypatch.setattr("cp.api.apply.MOST_RESOURCES", 1)
    api = entrance.api(OF_TEAM)
    texts = [TIMEOUT_YAML, TIMEOUT_YAML.replace("name: slow", "name: other")]
    body = {"resources": [{"text": text} for text in texts]}

    refused = api.post("/_apply", json=body, headers=bearer(OF_MEMBER))
    taken = api.post("/_apply", json=body, headers=bearer(OF_ADMIN))

    assert (refused.status_code, taken.status_code) == (400, 200)
    assert "there are 2, and 1 are the most" in refused.json()["detail"]


def test_every_resource_of_a_request_is_judged_and_none_written(entrance: Entrance) -> None:
    api = entrance.api(OF_TEAM)
    texts = [TIMEOUT_YAML, TIMEOUT_YAML.replace("mesh: default", "mesh: other"), "type: Mesh\nname: new\n"]
    before = api.get("/meshtimeouts").json()["total"]

    answer = api.post("/_apply", json={"resources": [{"text": text} for text in texts]}, headers=bearer(OF_MEMBER))

    assert answer.status_code == 403
    assert [fault["reason"].rpartition(" may not ")[2] for fault in answer.json()["invalid_parameters"]] == [
        "write MeshTimeout in mesh `other`",
        "write Mesh in mesh `new`",
    ]
    assert api.get("/meshtimeouts").json()["total"] == before


def test_a_mesh_is_deleted_with_what_is_in_it_only_by_whoever_may_delete_all_of_that(entrance: Entrance) -> None:
    api = entrance.api(OF_TEAM)
    secret = {"type": "Secret", "mesh": "default", "name": "key", "data": "a2V5"}
    api.put("/meshes/default/secrets/key", secret).raise_for_status()

    refused = api.delete("/meshes/default?cascade=true", headers=bearer(OF_MEMBER))

    assert (refused.status_code, "write Secret in mesh `default`" in refused.text) == (403, True)
    assert api.delete("/meshes/default?cascade=true").status_code == 200


def test_whoever_may_write_a_secret_may_not_read_it(entrance: Entrance) -> None:
    api, path = entrance.api(OF_TEAM), "/meshes/default/secrets/key"
    secret = {"type": "Secret", "mesh": "default", "name": "key", "data": "a2V5"}

    assert api.put(path, secret, **bearer(OF_WRITER)).status_code == 201
    for asked in (path, f"{path}?reveal=true", "/meshes/default/secrets"):
        assert api.get(asked, headers=bearer(OF_WRITER)).status_code == 403
    assert api.delete(path, headers=bearer(OF_WRITER)).status_code == 200


def test_a_secret_is_revealed_to_administrators_who_ask_for_it_and_that_is_logged(entrance: Entrance) -> None:
    reader = rights_of(
        "rights: [{groups: [team], may: [read], kinds: [Secret, Mesh]}]",
        "access.yaml",
        KINDS,
        Subjects(groups=ADMINS.groups),
    )
    api, path = entrance.api(reader), "/meshes/default/secrets/key"
    api.put(path, {"type": "Secret", "mesh": "default", "name": "key", "data": "a2V5"}).raise_for_status()

    with structlog.testing.capture_logs() as logs:
        revealed = api.get(f"{path}?reveal=true", headers=bearer(OF_ADMIN))
    assert (revealed.json()["data"], revealed.headers["cache-control"]) == ("a2V5", "no-store")
    assert [(line["event"], line["user"]) for line in logs] == [("api.revealed", "root")]
    assert "a2V5" not in str(logs)

    assert api.get(path, headers=bearer(OF_ADMIN)).json()["data"] == "[redacted]"
    assert api.get("/meshes/default/secrets?reveal=true").json()["items"][0]["data"] == "[redacted]"
    assert api.get(path, headers=bearer(OF_MEMBER)).json()["data"] == "[redacted]"
    assert api.get(f"{path}?reveal=true", headers=bearer(OF_MEMBER)).status_code == 403


def test_findings_and_progress_are_told_of_meshes_that_may_be_inspected(entrance: Entrance) -> None:
    nowhere = {"targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "nobody"}}}
    policies = [
        Document(Key("MeshTimeout", mesh, "lost"), timeout("lost", mesh=mesh) | {"spec": timeout()["spec"] | nowhere})
        for mesh in ("default", "other")
    ]
    control = AccessControl(lambda: OF_TEAM, clock=lambda: forge.NOW)
    api = entrance._start(state=FixedState(World.of((*documents(), *policies), KINDS)), access=control)

    def meshes(token: str) -> set[str]:
        findings = api.get("/_lint", headers=bearer(token)).json()["findings"]
        return {finding["resource"].partition(" ")[2].partition("/")[0] for finding in findings}

    assert meshes(OF_MEMBER) == {"default"}
    assert meshes(OF_ADMIN) >= {"default", "other"}


READERS: Final = """\
rights:
  - groups: [team]
    may: [read]
    kinds: [Mesh, MeshTimeout]
"""
SOME: Final = """\
  - groups: [team]
    may: [read]
    meshes: [default]
    kinds: [Inspection]
"""


def lint_of(entrance: Entrance, file: str, path: str) -> httpx.Response:
    return entrance.api(rights_of(file, "access.yaml", KINDS, ADMINS)).get(path, headers=bearer(OF_MEMBER))


@pytest.mark.parametrize("file", [READERS, READERS + SOME.replace("default", "gone")])
def test_who_may_look_into_no_mesh_is_not_told_that_there_is_nothing_to_say(entrance: Entrance, file: str) -> None:
    answer = lint_of(entrance, file, "/_lint")

    assert answer.status_code == 403
    assert "Inspection" in answer.json()["detail"]


def test_findings_name_the_meshes_of_which_nothing_is_told(entrance: Entrance) -> None:
    assert lint_of(entrance, READERS + SOME, "/_lint").json()["meshesNotTold"] == ["other"]
    assert "meshesNotTold" not in lint_of(entrance, READERS + SOME, "/meshes/default/_lint").json()
    assert "meshesNotTold" not in lint_of(entrance, FILE, "/_lint").json(), "a mesh that the caller may not know of"


def test_the_progress_of_a_change_names_only_proxies_that_the_caller_may_inspect(entrance: Entrance) -> None:
    everybody = ("default.web-1", "other.web-1")

    class Watched(NobodyThere):
        async def progress(self, revisions: Any, resources: Any, within: float) -> AsyncIterator[ChangeProgress]:
            yield ChangeProgress(1, 4, 0, everybody, everybody, everybody, everybody, (), is_done=True)

    control = AccessControl(lambda: OF_TEAM, clock=lambda: forge.NOW)
    api = entrance._start(state=FixedState(World.of(documents(), KINDS)), access=control, observed=Watched())
    for path in ("/_delivery", "/_delivery?wait=1s"):
        of_member = api.get(path, headers=bearer(OF_MEMBER)).json()
        of_admin = api.get(path, headers=bearer(OF_ADMIN)).json()

        for names in ("refusing", "waiting", "gone", "failed"):
            assert (of_member[names], of_admin[names]) == (["default.web-1"], list(everybody))


# --- tokens of proxies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "path", "status"),
    [
        ({}, _ONE, 200),
        ({"Name": ""}, "/meshes/default/dataplanes/db-1", 200),
        ({"Name": "", "Tags": {"kuma.io/service": ["web"]}}, "/meshes/default/dataplanes/db-1", 403),
        ({"Name": "", "Tags": {"kuma.io/service": ["web"]}}, _ONE, 200),
        ({}, "/meshes/other/dataplanes/web-1", 403),
        ({"Type": "ingress"}, _ONE, 403),
        ({}, "/meshes/default/meshtimeouts/web-1", 403),
    ],
)
def test_the_token_of_a_proxy_opens_its_own_dataplane(
    entrance: Entrance, claims: dict[str, Any], path: str, status: int
) -> None:
    api = entrance.api()
    for name in ("web-1", "db-1"):
        api.put(f"/meshes/default/dataplanes/{name}", served(name)).raise_for_status()

    answer = api.get(path, headers=bearer(forge.token({**forge.DATAPLANE, **claims})))

    assert answer.status_code == status, answer.text


def test_a_proxy_registers_only_what_its_token_allows(entrance: Entrance) -> None:
    api = entrance.api()
    token = forge.token({**forge.DATAPLANE, "Name": "", "Tags": {"kuma.io/service": ["web"]}})

    def registered(name: str) -> int:
        sent = served(name)
        return api.put(f"/meshes/default/dataplanes/{name}", sent, **bearer(token)).status_code

    assert registered("web-2") == 201
    assert registered("db-2") == 403
    assert api.get("/meshes/default/dataplanes/db-2").status_code == 404


def test_a_proxy_that_leaves_is_told_how_many_have_not_heard_and_not_who(entrance: Entrance) -> None:
    class Waiting(NobodyThere):
        async def progress(
            self, revisions: Collection[int], resources: Collection[Key], within: float
        ) -> AsyncIterator[ChangeProgress]:
            yield ChangeProgress(7, 2, 1, waiting=("default.db-1",), is_done=True)

    control = AccessControl(lambda: OF_TEAM, clock=lambda: forge.NOW)
    api = entrance._start(state=FixedState(World.of(documents(), KINDS)), access=control, observed=Waiting())

    answer = api.post("/_delivery", json={"revisions": [7]}, headers=bearer(OF_PROXY)).json()
    about_one = {"resources": ["Dataplane/default/db-1"]}

    assert (answer["missing"], answer["waiting"]) == (1, [])
    assert "db-1" not in str(answer)
    assert api.post("/_delivery", json=about_one, headers=bearer(OF_PROXY)).status_code == 403


# --- tries, traces ----------------------------------------------------------------------------------------------------


def test_an_address_with_too_many_bad_tokens_is_told_to_wait_and_good_ones_are_heard(entrance: Entrance) -> None:
    api = entrance.api()
    statuses = [api.get("/", headers=bearer(f"bad{n}"), peer="192.0.2.1").status_code for n in range(MOST_TRIES)]

    later = api.get("/meshes", headers=bearer("bad"), peer="192.0.2.1")

    assert statuses == [401] * MOST_TRIES
    assert (later.status_code, int(later.headers["retry-after"]) > 0) == (429, True)
    assert api.get("/", peer="192.0.2.1").status_code == 200
    assert api.get("/meshes", headers=bearer(OF_ADMIN), peer="192.0.2.1").status_code == 200
    assert api.get("/meshes", headers=bearer("bad"), peer="192.0.2.2").status_code == 401


def test_a_write_leaves_who_what_and_from_where(entrance: Entrance) -> None:
    api, path = entrance.api(OF_TEAM), "/meshes/default/meshtimeouts/slow"
    who = {"user": "jane", "groups": ["team", "mesh-system:authenticated"], "caller": "192.0.2.1:123"}

    with structlog.testing.capture_logs() as logs:
        ask(api, Asked("PUT", path, "", timeout()), OF_MEMBER).raise_for_status()
        ask(api, Asked("POST", "/_apply", "", {"resources": [{"text": TIMEOUT_YAML}]}), OF_MEMBER).raise_for_status()
        ask(api, Asked("DELETE", path, ""), OF_MEMBER).raise_for_status()

    assert [line["event"] for line in logs] == ["api.stored", "api.applied", "api.deleted"]
    assert all(line.items() >= who.items() and isinstance(line["revision"], int) for line in logs)
    assert "MeshTimeout default/slow" in str(logs[0]["resource"])


@pytest.mark.parametrize("token", ["", JANE, EXPIRED, FORGED])
def test_a_refusal_leaves_who_what_and_from_where_and_no_token(entrance: Entrance, token: str) -> None:
    api = entrance.api()

    with structlog.testing.capture_logs() as logs:
        refused = ask(api, Asked("DELETE", "/meshes/default", ""), token)

    (line,) = [line for line in logs if line["event"] == "api.refused"]
    assert (line["method"], line["path"], line["caller"]) == ("DELETE", "/meshes/default", "192.0.2.1:123")
    assert line["reason"] == refused.json()["detail"]
    assert not token or token not in f"{logs}{refused.text}{refused.headers}"


def test_a_refusal_says_which_right_is_missing_for_whom(entrance: Entrance) -> None:
    api = entrance.api()

    refused = api.delete("/meshes/default", headers=bearer(JANE)).json()
    unknown = api.delete("/meshes/default", peer="192.0.2.1").json()

    assert refused["title"] == "Access denied"
    assert "user `jane` (groups `mesh-system:authenticated`) may not write Mesh in mesh `default`" in refused["detail"]
    assert unknown["title"] == "Authentication required"
    assert "koguma dp: --dataplane-token-file" in unknown["detail"]
    assert "--token-file" in unknown["detail"]

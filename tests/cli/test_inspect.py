"""`koguma render` and `koguma inspect`: what a proxy gets and why, in files and in a running control plane."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from cp.cli import instances, rule_tables
from cp.cli.envoys import EnvoyView, show
from cp.cli.options import TableFormat
from tests.api.samples import dataplane, timeout
from tests.cli.conftest import Ended, Koguma
from tests.rules.edge import EDGE
from tests.support.waiting import eventually

SERVICE = """\
type: MeshService
mesh: default
name: backend
spec:
  selector: {dataplaneTags: {kuma.io/service: backend}}
  ports: [{port: 80, targetPort: 8080, appProtocol: http, name: http}]
"""
GENERAL = """\
type: MeshTimeout
mesh: default
name: general
spec:
  to:
    - targetRef: {kind: Mesh}
      default:
        connectionTimeout: 2s
        http: {requestTimeout: 1s}
"""
SPECIFIC = """\
type: MeshTimeout
mesh: default
name: specific
spec:
  to:
    - targetRef: {kind: MeshService, name: backend}
      default:
        http: {requestTimeout: 7s}
"""


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    """A folder with a frontend, a backend and two timeouts."""
    (folder := tmp_path / "mesh").mkdir()
    outbound = {"port": 10001, "backendRef": {"kind": "MeshService", "name": "backend", "port": 80}}
    frontend = dataplane("frontend-1", service="frontend", outbound=[outbound])
    backend = dataplane("backend-1", service="backend")
    (folder / "proxies.yaml").write_text(yaml.safe_dump_all([frontend, backend]))
    (folder / "policies.yaml").write_text(f"{SERVICE}---\n{GENERAL}---\n{SPECIFIC}")
    return folder


def test_the_configuration_of_a_proxy_is_shown_by_type_and_name(offline: Koguma, mesh: Path) -> None:
    configuration = yaml.safe_load(offline("render", "frontend-1", "-f", mesh).out)

    assert set(configuration) == {"listeners", "routes", "clusters", "endpoints"}
    assert "kri_msvc_default___backend_http" in configuration["clusters"]


def test_one_type_of_resource_is_shown_by_itself(offline: Koguma, mesh: Path) -> None:
    ended = offline("render", "frontend-1", "-f", mesh, "--type", "clusters", "-o", "json")

    cluster = json.loads(ended.out)["kri_msvc_default___backend_http"]
    assert cluster["connectTimeout"] == "2s"


def test_a_running_control_plane_serves_what_was_rendered(koguma: Koguma, mesh: Path) -> None:
    applied(koguma, mesh)
    rendered = json.loads(koguma("render", "frontend-1", "-f", mesh, "-o", "json").out)

    def served() -> dict[str, object]:

        answer = httpx.get(f"{koguma.environment['KOGUMA_ADDRESS']}/meshes/default/dataplanes/frontend-1/_config")
        configuration: dict[str, object] = answer.raise_for_status().json()["xds"]
        return {name.rpartition(".")[2]: resources for name, resources in configuration.items()}

    assert served()["Cluster"] == rendered["clusters"]


def test_of_what_is_not_served_a_running_control_plane_says_why(koguma: Koguma, tmp_path: Path) -> None:
    ingress = {"type": "ZoneIngress", "address": "127.0.0.1", "port": 10001, "name": "ingress"}
    networking = {"address": "127.0.0.1", "listeners": [ingress]}
    document = {"type": "Dataplane", "mesh": "default", "name": "ingress", "networking": networking}
    (file := tmp_path / "ingress.yaml").write_text(yaml.safe_dump(document))
    koguma("apply", "-f", file)

    ended = koguma("render", "ingress")

    assert (ended.status, ended.out) == (0, "{}\n")
    assert "not enforced" in ended.err


def test_of_a_gateway_it_is_told_why_it_does_not_listen(koguma: Koguma, tmp_path: Path) -> None:
    gateway = {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}
    networking = {"address": "127.0.0.1", "gateway": gateway}
    edge = {"type": "Dataplane", "mesh": "default", "name": "edge-1", "networking": networking}
    tcp = [{"port": 9000, "protocol": "TCP", "hostname": name} for name in ("a.example", "b.example")]
    selectors = [{"match": {"kuma.io/service": "edge"}}]
    mesh_gateway = {"type": "MeshGateway", "mesh": "default", "name": "edge", "selectors": selectors}
    file, reason = tmp_path / "edge.yaml", "no MeshGateway selects it"
    for documents in ([edge], [edge, {**mesh_gateway, "conf": {"listeners": tcp}}]):
        file.write_text(yaml.safe_dump_all(documents))
        koguma("apply", "-f", file)

        for ended in (koguma("render", "edge-1"), koguma("render", "edge-1", "-f", file)):
            assert ended.status == 0
            assert reason in ended.err
            assert ended.err.count("\n") == 1
        reason = "conf.listeners[1].hostname: this listener is not served: the port 9000 has another TCP listener"


def test_what_is_invalid_is_told_and_left_out(offline: Koguma, mesh: Path) -> None:
    (mesh / "bad.yaml").write_text(SPECIFIC.replace("specific", "bad").replace("7s", "seven"))

    ended = offline("render", "frontend-1", "-f", mesh)

    assert ended.status == 0
    assert "MeshTimeout default/bad" in ended.err
    assert "kri_msvc_default___backend_http" in ended.out


def test_a_proxy_that_is_not_in_the_files_is_told_with_those_that_are(offline: Koguma, mesh: Path) -> None:
    ended = offline("render", "frontend", "-f", mesh)

    assert (ended.status, ended.err) == (
        1,
        "Error: there is no valid Dataplane frontend in mesh default\nThere is backend-1, frontend-1.\n",
    )


@pytest.fixture(params=["files", "control plane"])
def reader(request: pytest.FixtureRequest, mesh: Path) -> Koguma:
    """A command line that is told the same, by files or by a control plane that has them."""
    if request.param == "files":
        return Files(mesh)
    koguma: Koguma = request.getfixturevalue("koguma")
    applied(koguma, mesh)
    return koguma


def applied(koguma: Koguma, mesh: Path) -> None:
    """Apply a mesh, and wait until the control plane works with it."""
    koguma("apply", "-f", mesh)
    eventually(lambda: len(koguma("inspect", "policies", "frontend-1").lines) == 5)


class Files(Koguma):
    def __init__(self, folder: Path) -> None:
        super().__init__("http://127.0.0.1:9")
        self._folder = folder

    def __call__(self, *arguments: str | Path, stdin: str | None = None) -> Ended:
        return super().__call__(*arguments, "-f", self._folder, stdin=stdin)


def test_the_rules_of_a_proxy_are_shown_with_their_origins(reader: Koguma) -> None:
    lines = reader("inspect", "rules", "frontend-1").lines

    assert [line.split()[0] for line in lines] == ["TYPE", *["MeshTimeout"] * (len(lines) - 1)]
    (of_service,) = [line for line in lines if "to MeshService backend" in line]
    assert '"requestTimeout":"7s"' in of_service
    assert of_service.endswith("specific[0]")


OF_LISTENERS = """---
type: MeshTimeout
mesh: default
name: of-shop
spec:
  targetRef: {kind: MeshGateway, name: edge, tags: {at: http}}
  to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 3s}}}]
---
type: MeshTimeout
mesh: default
name: of-admin
spec:
  targetRef: {kind: MeshGateway, name: edge, tags: {at: admin}}
  to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 4s}}}]
"""


def test_each_listener_of_a_gateway_is_shown_with_its_own_rules(offline: Koguma, tmp_path: Path) -> None:
    (tmp_path / "edge.yaml").write_text(EDGE + OF_LISTENERS, "utf-8")
    lines = offline("inspect", "rules", "edge", "-f", tmp_path).lines

    assert [" ".join(line.split()[1:]) for line in lines if line.startswith("MeshTimeout")] == [
        'to all at port 80 for *.example {"http":{"requestTimeout":"3s"}} of-shop',
        'to all at port 80 for admin.example {"http":{"requestTimeout":"4s"}} of-admin',
    ]


def test_the_rules_of_a_proxy_are_shown_to_machines_as_kuma_answers_them(reader: Koguma) -> None:
    answer = json.loads(reader("inspect", "rules", "frontend-1", "-o", "json").out)

    assert answer["resource"] == {"type": "Dataplane", "mesh": "default", "name": "frontend-1"}
    assert [rule["type"] for rule in answer["rules"]] == ["MeshTimeout"]


def test_the_policies_of_a_proxy_are_shown(reader: Koguma) -> None:
    lines = reader("inspect", "policies", "frontend-1").lines

    assert {tuple(line.split()[:3]) for line in lines[1:3]} == {
        ("MeshTimeout", "default", "general"),
        ("MeshTimeout", "default", "specific"),
    }
    assert lines[3:] == ["", "Policy engine: TargetRef"]


def test_the_settings_decide_of_a_mesh_in_files_that_names_no_engine(
    mesh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUMA_DEFAULTS_POLICY_ENGINE", "Legacy")
    assert Files(mesh)("inspect", "policies", "frontend-1").lines[-1] == "Policy engine: Legacy"

    monkeypatch.setenv("KUMA_DEFAULTS_POLICY_ENGINE", "Old")
    assert "KUMA_DEFAULTS_POLICY_ENGINE=Old" in Files(mesh)("inspect", "policies", "frontend-1").err


def test_the_proxies_of_a_policy_are_shown_with_what_of_it_survives(reader: Koguma) -> None:
    lines = reader("inspect", "meshtimeout", "general").lines
    of_frontend = [line for line in lines if line.startswith("frontend-1")]

    assert any("connectionTimeout" in line and "   in force" in line for line in of_frontend)
    (lost,) = [line for line in of_frontend if "overridden" in line]
    assert "http.requestTimeout" in lost
    assert "by MeshTimeout specific" in lost
    assert lost.endswith(": 7s")


def test_a_policy_that_is_not_there_is_told(reader: Koguma) -> None:
    ended = reader("inspect", "meshtimeout", "generals")

    assert ended.status == 1
    assert "general" in ended.err


def test_a_type_that_is_no_policy_is_refused(offline: Koguma) -> None:
    assert offline("inspect", "meshservice", "backend").err.startswith("Error: a MeshService is no policy\n")


NAMES: Final = """\
type: VirtualOutbound
mesh: default
name: names
selectors: [{match: {kuma.io/service: frontend}}]
conf: {host: "{{.service}}.shop", port: "8080", parameters: [{name: service, tagKey: kuma.io/service}]}
"""


def test_the_names_that_a_virtual_outbound_gives_are_shown(koguma: Koguma, offline: Koguma, tmp_path: Path) -> None:
    frontend = dataplane("frontend-1", service="frontend")
    frontend["networking"]["transparentProxying"] = {"redirectPortOutbound": 15001}
    (file := tmp_path / "mesh.yaml").write_text(f"{yaml.safe_dump(frontend)}---\n{NAMES}")
    koguma("apply", "-f", file)

    (shown,) = offline("inspect", "VirtualOutbound", "names", "-f", file).lines[1:]
    (asked,) = koguma("inspect", "virtual-outbound", "names").lines[1:]
    columns = shown.split()

    assert columns[:3] == ["frontend-1", "at", "frontend.shop:8080"]
    assert '{"kuma.io/service":"frontend"}' in columns
    assert columns[-2:] == ["in", "force"]
    assert asked.split()[: len(columns)] == columns


LEGACY: Final = """\
type: Timeout
mesh: default
name: general
sources: [{match: {kuma.io/service: "*"}}]
destinations: [{match: {kuma.io/service: "*"}}]
conf: {connectTimeout: 3s}
---
type: Timeout
mesh: default
name: specific
sources: [{match: {kuma.io/service: frontend}}]
destinations: [{match: {kuma.io/service: backend}}]
conf: {connectTimeout: 4s}
"""


def test_legacy_policies_are_shown_with_where_they_hold_and_why_not(offline: Koguma, tmp_path: Path) -> None:
    frontend = dataplane(
        "frontend-1", service="frontend", outbound=[{"port": 1, "tags": {"kuma.io/service": "backend"}}]
    )
    (file := tmp_path / "mesh.yaml").write_text(f"{yaml.safe_dump(frontend)}---\n{LEGACY}")

    answer = yaml.safe_load(offline("inspect", "policies", "frontend-1", "-f", file, "-o", "json").out)
    general, specific = answer["policies"]
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "specific" in text) - 2
    why = f"Timeout specific ({file}:{line}) is more specific"
    table = offline("inspect", "policies", "frontend-1", "-f", file).out

    assert (general["inForce"], general["for"]) == (
        False,
        [{"where": "to backend", "inForce": False, "reason": why}],
    )
    assert (specific["inForce"], specific["for"]) == (True, [{"where": "to backend", "inForce": True}])
    assert why in table


def test_a_legacy_policy_is_shown_with_what_holds_of_it_on_each_proxy(offline: Koguma, tmp_path: Path) -> None:
    calling = [{"port": 1, "tags": {"kuma.io/service": "backend"}}, {"port": 2, "tags": {"kuma.io/service": "cache"}}]
    frontend = dataplane("frontend-1", service="frontend", outbound=calling)
    idle = dataplane("idle-1", service="idle")
    documents = [yaml.safe_dump(frontend), yaml.safe_dump(idle), LEGACY]
    (file := tmp_path / "mesh.yaml").write_text("---\n".join(documents))

    answer = yaml.safe_load(offline("inspect", "timeout", "general", "-f", file, "-o", "json").out)
    table = offline("inspect", "timeout", "general", "-f", file).out
    (of_frontend, of_idle) = answer["items"]

    assert [(item["name"], item["mesh"], item["type"]) for item in answer["items"]] == [
        ("frontend-1", "default", "Dataplane"),
        ("idle-1", "default", "Dataplane"),
    ]
    (effect,) = of_frontend["survives"]
    assert (effect["where"], effect["field"], effect["value"]) == ("to cache", "conf.connectTimeout", "3s")
    assert file.read_text().splitlines()[effect["line"] - 1].startswith("conf: {connectTimeout: 3s}")
    (outranked,) = of_frontend["withoutEffect"]
    assert (outranked["where"], outranked["field"]) == ("to backend", "conf")
    assert outranked["reason"].endswith("is more specific")
    (not_called,) = of_idle["withoutEffect"]
    assert not_called["reason"] == "the proxy calls no service by tag that it is for"
    assert "in force" in table


def test_a_balancer_that_would_be_the_same_without_a_word_is_in_force(offline: Koguma, tmp_path: Path) -> None:
    frontend = dataplane(
        "frontend-1", service="frontend", outbound=[{"port": 1, "tags": {"kuma.io/service": "backend"}}]
    )
    anybody = [{"match": {"kuma.io/service": "*"}}]
    conf = {"loadBalancer": {"roundRobin": {}}, "destination": {"kuma.io/service": "*"}}
    route = {"type": "TrafficRoute", "mesh": "default", "name": "all", "sources": anybody, "destinations": anybody}
    (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump_all([frontend, {**route, "conf": conf}]))

    (item,) = yaml.safe_load(offline("inspect", "traffic-route", "all", "-f", file, "-o", "json").out)["items"]

    assert [effect["field"] for effect in item["survives"]] == ["conf", "conf.loadBalancer"]
    assert not item.get("withoutEffect")


def test_a_route_of_old_and_who_may_call_are_shown_as_they_are_written(offline: Koguma, tmp_path: Path) -> None:
    backend = dataplane("backend-1", service="backend", outbound=[{"port": 1, "tags": {"kuma.io/service": "backend"}}])
    policies = """\
type: TrafficRoute
mesh: default
name: all
sources: [{match: {kuma.io/service: "*"}}]
destinations: [{match: {kuma.io/service: "*"}}]
conf: {destination: {kuma.io/service: "*", version: v1}}
---
type: TrafficPermission
mesh: default
name: all
sources: [{match: {kuma.io/service: "*"}}]
destinations: [{match: {kuma.io/service: "*"}}]
"""
    (file := tmp_path / "mesh.yaml").write_text(f"{yaml.safe_dump(backend)}---\n{policies}")

    (route,) = yaml.safe_load(offline("inspect", "traffic-route", "all", "-f", file, "-o", "json").out)["items"]
    (permission,) = yaml.safe_load(offline("inspect", "traffic-permission", "all", "-f", file, "-o", "json").out)[
        "items"
    ]

    assert [(effect["where"], effect["field"]) for effect in route["survives"]] == [("to backend", "conf")]
    (unasked,) = permission["withoutEffect"]
    assert (unasked["field"], unasked["value"]) == ("sources", [{"match": {"kuma.io/service": "*"}}])
    assert unasked["reason"] == "without mTLS nobody is asked who calls"


def test_a_mesh_gateway_route_is_shown_at_each_listener_to_which_it_is_bound(offline: Koguma, tmp_path: Path) -> None:
    file = Path("tests/cases/lint/mesh-gateway-routes-that-hold-nowhere.in.yaml").absolute()

    def told(name: str) -> list[tuple[str, str, str]]:
        answer = yaml.safe_load(offline("inspect", "meshgatewayroute", name, "-f", file, "-o", "json").out)
        return [
            (effect["where"], effect["field"], sort)
            for item in answer["items"]
            for sort in ("survives", "overridden", "withoutEffect")
            for effect in item[sort]
        ]

    edge = yaml.safe_load(offline("inspect", "policies", "edge-1", "-f", file, "-o", "json").out)
    in_force = {
        policy["name"]: policy["inForce"] for policy in edge["policies"] if policy["type"] == "MeshGatewayRoute"
    }

    assert told("holds") == [("on listener 18080", "conf.http.rules[0]", "survives")]
    assert told("older") == [("on listener 18080", "conf.http.rules[0]", "overridden")]
    assert told("replaced") == [("on listener 18081 for shop.example", "conf", "withoutEffect")]
    assert told("of-nobody") == []
    assert in_force == {"holds": True, "older": False, "for-tcp": False, "replaced": False}


def test_what_holds_of_legacy_policies_is_among_the_rules_of_a_proxy(offline: Koguma, tmp_path: Path) -> None:
    calling = [{"port": 1, "tags": {"kuma.io/service": "backend"}}]
    frontend = dataplane("frontend-1", service="frontend", outbound=calling)
    (file := tmp_path / "mesh.yaml").write_text(f"{yaml.safe_dump(frontend)}---\n{LEGACY}")

    answer = yaml.safe_load(offline("inspect", "rules", "frontend-1", "-f", file, "-o", "json").out)
    (rule,) = answer["legacyRules"]
    table = offline("inspect", "rules", "frontend-1", "-f", file).out

    assert (rule["type"], rule["where"], rule["conf"]) == ("Timeout", "to backend", {"conf.connectTimeout": "4s"})
    assert [origin["resourceMeta"]["name"] for origin in rule["origin"]] == ["specific"]
    assert "to backend" in table
    assert f"specific ({file}:{rule['origin'][0]['line']})" in table


def test_a_rate_limit_of_a_service_outside_is_in_force_at_those_who_call_it(offline: Koguma, tmp_path: Path) -> None:
    calling = [{"port": 1, "tags": {"kuma.io/service": "paid"}}]
    frontend = dataplane("frontend-1", service="frontend", outbound=calling)
    rest = """\
type: ExternalService
mesh: default
name: paid
tags: {kuma.io/service: paid, kuma.io/protocol: http}
networking: {address: "192.0.2.1:80"}
---
type: RateLimit
mesh: default
name: of-paid
sources: [{match: {kuma.io/service: "*"}}]
destinations: [{match: {kuma.io/service: paid}}]
conf: {http: {requests: 3, interval: 7s}}
"""
    (file := tmp_path / "mesh.yaml").write_text(f"{yaml.safe_dump(frontend)}---\n{rest}")

    (item,) = yaml.safe_load(offline("inspect", "rate-limit", "of-paid", "-f", file, "-o", "json").out)["items"]

    assert {(effect["where"], effect["field"], effect["value"]) for effect in item["survives"]} == {
        ("to paid", "conf.http.requests", 3),
        ("to paid", "conf.http.interval", "7s"),
    }


def test_no_instance_speaks_to_the_terminal() -> None:
    """What stands in the roster or answers at an address may be anything."""
    item = {"name": "\x1b[2Jcp-2\nx", "address": "http://cp-2", "status": "Unknown", "self": False, "leads": False}
    item |= {"version": "1", "started": "2026-01-01T00:00:00Z", "silentFor": 1.0, "revision": 1, "proxies": None}

    lines = list(instances.listing([item | {"reason": "\x1b]0;owned\x07"}]))

    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)


class _Answering:
    """A control plane that answers a question about an Envoy, of which none is needed here."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self._answer = answer

    def answer(self, path: str, fields: Collection[str], **parameters: str) -> Mapping[str, Any]:
        del path, fields, parameters
        return self._answer


def test_a_certificate_that_many_parts_of_an_envoy_have_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    certificate = {"cert_chain": [{"serial_number": "7"}], "ca_cert": [{"serial_number": "8"}]}
    client: Any = _Answering({"certificates": [certificate] * 5})

    show(client, "/meshes/default/dataplanes/web-1", EnvoyView.CERTIFICATES, TableFormat.TABLE, filter="")

    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[-1] for row in rows] == ["7", "8"]


@pytest.mark.parametrize(
    ("view", "answer", "filter_", "told"),
    [
        (EnvoyView.CERTIFICATES, {}, "", "its Envoy shows no certificate, and has none by which it trusts others\n"),
        (EnvoyView.CERTIFICATES, {"certificates": [{}]}, "", "its Envoy shows no certificate, and has none"),
        (EnvoyView.CLUSTERS, {"cluster_statuses": []}, "", "its Envoy has no clusters\n"),
        (EnvoyView.STATS, {"stats": []}, "", "no counter of its Envoy was used yet\n"),
        (EnvoyView.STATS, {"stats": []}, "rq", "no counter that was used has such a name\n"),
    ],
)
def test_an_envoy_that_has_nothing_to_show_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], view: EnvoyView, answer: dict[str, Any], filter_: str, told: str
) -> None:
    client: Any = _Answering(answer)

    show(client, "/meshes/default/dataplanes/web-1", view, TableFormat.TABLE, filter=filter_)

    assert capsys.readouterr().out.startswith(told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("inspect", "policies", "web-1"), "no policy selects this proxy"),
        (("inspect", "rules", "web-1"), "no policy says anything for this proxy"),
        (("inspect", "meshtimeout", "lonely"), "it selects no proxy"),
    ],
)
def test_where_there_is_nothing_to_inspect_a_sentence_says_so(
    offline: Koguma, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    lonely = {"kind": "Dataplane", "labels": {"of": "nobody"}}
    policy = timeout(name="lonely")
    policy["spec"] = {"targetRef": lonely, "to": policy["spec"]["to"]}
    (file := tmp_path / "mesh.yaml").write_text(yaml.safe_dump_all([dataplane("web-1"), policy]))

    assert offline(*words, "-f", file).lines[0] == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("config", "control-planes", "list"), "no control plane is remembered"),
        (("rollout", "list"), "there is no rollout to show"),
        (("history", "meshtimeout", "never"), "no change is remembered here"),
    ],
)
def test_lists_of_nothing_say_so(koguma: Koguma, words: tuple[str, ...], told: str) -> None:
    assert koguma(*words).lines[0].startswith(told)


@pytest.mark.parametrize("table", [rule_tables.rules, rule_tables.policies])
def test_what_a_rollout_means_for_a_proxy_is_below_its_rules_and_policies(table: Callable[..., str]) -> None:
    answer = {"rules": [], "policies": [], "rollout": "rollout 7 is under way (paused): this proxy is served …"}

    assert table(answer, wide=False).endswith("\nrollout 7 is under way (paused): this proxy is served …\n")


def test_what_is_proposed_is_not_looked_at_for_a_policy() -> None:
    text = rule_tables.dataplanes({"items": [], "notLookedAt": ["what rollout 7 of mesh default proposes"]}, wide=False)

    assert text.splitlines()[-1] == "not looked at: what rollout 7 of mesh default proposes"


def test_a_value_that_a_proxy_refuses_or_has_not_yet_is_not_told_to_be_in_force() -> None:
    value = {"where": "on the proxy", "field": "x", "value": 1, "file": "", "line": 0}
    nothing: dict[str, Any] = {"overridden": [], "withoutEffect": []}
    refused = {"name": "a", "status": "Refused", "survives": [value, {**value, "refused": ["the cluster b: no"]}]}
    behind, there = ({"name": n, "status": s, "survives": [value]} for n, s in (("b", "Out of sync"), ("c", "Online")))

    items = [each | nothing for each in (refused, behind, there)]
    lines = rule_tables.dataplanes({"items": items}, wide=False).splitlines()

    assert [line.rpartition("   ")[2] for line in lines[1:]] == [
        "in force",
        "refused: the cluster b: no",
        "in force once the proxy has it (out of sync)",
        "in force",
    ]

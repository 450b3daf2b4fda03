"""What is said of builtin gateways, as time goes by and as their listeners change."""

from __future__ import annotations

import pytest
from cryptography import x509

from cp.insight.lint import lint
from cp.model.violation import Finding
from tests.golden import ROOT
from tests.rules.edge import EDGE
from tests.rules.worlds import world_of
from tests.snapshots import policies

DAY = 86_400.0
HTTPS = (ROOT / "lint" / "certificate-for-others.in.yaml").read_text()


def ends() -> float:
    """When the certificate of the case ends."""
    lines = HTTPS.splitlines()
    first, last = (next(at for at, line in enumerate(lines) if mark in line) for mark in ("BEGIN CERT", "END CERT"))
    pem = "\n".join(line.strip() for line in lines[first : last + 1])
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()


def told(text: str, now: float | None = None) -> dict[str, Finding]:
    return {finding.code: finding for finding in lint(policies(), world_of(text), now=now)}


def test_a_certificate_is_told_of_a_month_before_it_ends() -> None:
    assert "certificate-ends" not in told(HTTPS)
    assert "certificate-ends" not in told(HTTPS, ends() - 31 * DAY)

    finding = told(HTTPS, ends() - 29.5 * DAY)["certificate-ends"]
    assert (finding.path, finding.message) == (
        "conf.listeners[0].tls.certificates[0]",
        "this certificate ends in 29 days",
    )


def test_a_certificate_that_has_ended_is_an_error() -> None:
    findings = told(HTTPS, ends() + 1)

    assert findings["certificate-ended"].severity == "error"
    assert "certificate-ends" not in findings


@pytest.mark.parametrize(
    ("hostname", "is_for"),
    [("shop.other", True), ("www.shop.other", True), ("www.www.shop.other", False), ('"*.shop.other"', False)],
)
def test_a_certificate_is_held_against_the_hostname(hostname: str, is_for: bool) -> None:
    text = HTTPS.replace('hostname: "*.example"', f"hostname: {hostname}")

    assert ("certificate-for-others" not in told(text)) is is_for


def test_a_gateway_at_which_all_is_well_is_told_nothing() -> None:
    routes = EDGE.replace("tags: {at: http}}\n  to:", "}\n  to:").replace("name: edge, }", "name: edge}")
    routes = routes.replace("hostnames: [shop.example]", "hostnames: [shop.example, admin.example]")

    assert not told(routes)


def test_a_hostname_is_told_of_only_where_no_listener_takes_it() -> None:
    assert "hostname-not-taken" not in told(EDGE.replace("[shop.example]", '["*.shop.example"]'))
    assert "hostname-not-taken" not in told(EDGE.replace("[shop.example]", '["*"]'))
    assert "hostname-not-taken" in told(EDGE.replace("[shop.example]", "[example]"))


SECOND = """---
type: Dataplane
mesh: default
name: second
networking: {address: %s, gateway: {type: BUILTIN, tags: {kuma.io/service: edge}}}
"""


def test_of_two_gateways_on_one_machine_ports_that_both_have_are_told() -> None:
    assert "address-shared" in told(EDGE + SECOND % "10.0.0.1")
    assert "address-shared" not in told(EDGE + SECOND % "10.0.0.7")


BESIDE = """---
type: Dataplane
mesh: default
name: beside
networking:
  address: %s
  inbound: [{port: 9000, tags: {kuma.io/service: beside}}]
"""


def test_of_a_gateway_and_an_inbound_on_one_machine_the_port_that_both_have_is_told() -> None:
    finding = told(EDGE + BESIDE % "10.0.0.1")["address-shared"]

    assert (str(finding.resource), finding.path) == ("Dataplane default/edge", "networking.gateway")
    assert "Dataplane beside has 10.0.0.1:9000 too" in finding.message
    assert "address-shared" not in told(EDGE + BESIDE % "10.0.0.7")


@pytest.mark.parametrize(
    ("address", "port", "is_told"), [("127.0.0.1", 80, True), ("127.0.0.1", 9901, False), ("10.0.0.1", 80, False)]
)
def test_a_port_that_the_envoy_of_a_gateway_has_for_itself_is_told(address: str, port: int, is_told: bool) -> None:
    text = EDGE.replace("address: 10.0.0.1, gateway", f"address: {address}, admin: {{port: {port}}}, gateway")

    assert ("address-taken" in told(text)) is is_told


TIMEOUT = """---
type: MeshTimeout
mesh: default
name: t
spec: {targetRef: %s, to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: 9s}}}]}
"""


@pytest.mark.parametrize(
    ("target", "is_told"),
    [
        ("{kind: MeshSubset, tags: {kuma.io/service: edge}}", True),
        ("{kind: MeshService, name: edge}", True),
        ("{kind: MeshSubset, tags: {kuma.io/service: web}}", False),
        ("{kind: Mesh, proxyTypes: [Gateway]}", False),
        ("{kind: MeshGateway, name: edge}", False),
    ],
)
def test_a_gateway_is_best_selected_by_its_mesh_gateway(target: str, is_told: bool) -> None:
    assert ("prefer-gateway" in told(EDGE + TIMEOUT % target)) is is_told


OF_EDGE = TIMEOUT % "{kind: MeshSubset, tags: {kuma.io/service: edge}}"
OF_BOTH = TIMEOUT % "{kind: MeshSubset}"


def test_who_selects_a_gateway_by_tags_is_advised_once() -> None:
    findings = told(EDGE + OF_EDGE)

    assert "deprecated" not in findings
    assert findings["prefer-gateway"].severity == "warning"
    assert "kind: Dataplane" not in findings["prefer-gateway"].hint


def test_who_selects_gateways_and_other_proxies_is_told_the_targets_for_both() -> None:
    findings = told(EDGE + OF_BOTH)

    assert "deprecated" not in findings
    assert findings["prefer-gateway"].hint == (
        "write `kind: MeshGateway` with `name: edge`, and `tags` for some listeners; "
        "and, in a policy of its own, `kind: Dataplane` with `labels` for the other proxies that it selects"
    )


def test_who_selects_no_gateway_is_told_to_select_dataplanes() -> None:
    assert told(EDGE + TIMEOUT % "{kind: MeshSubset, tags: {kuma.io/service: web}}")["deprecated"].hint == (
        "choose proxies with the kind Dataplane, by `labels`"
    )


def test_another_thing_that_is_deprecated_is_told_beside_it() -> None:
    misspelt = TIMEOUT % "{kind: MeshSubset, tags: {kuma.io/service: edge}}"
    findings = told(EDGE + misspelt.replace("to: [{targetRef: {kind: Mesh}", "from: [{targetRef: {kind: Mesh}"))

    assert findings["deprecated"].path == "spec.from"


def test_a_policy_that_names_the_dataplane_of_a_gateway_is_told_what_selects_it() -> None:
    finding = told(EDGE + TIMEOUT % "{kind: Dataplane, name: edge}")["selects-no-proxy"]

    assert finding.hint == "a builtin gateway is selected by its MeshGateway: write `kind: MeshGateway`"

"""An Envoy is shown what refers to certificates that nobody has yet, and does not wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cp.identity.authority import KeyPair
from cp.model.document import Document
from cp.serving.preflight.rounds import Rounds
from cp.serving.preflight.scratch import scratch_config
from cp.translate.packing import SECRET
from tests.api.samples import dataplane
from tests.golden import Case, cases
from tests.identity.meshes import mesh, new_authority, provided, trusting
from tests.plan.test_preflight import (
    REFUSED,
    added,
    golden_proxy,
    keyed,
    limits_alone,
    proxies_of,
    said,
    worlds_proxies,
)

ADS = {"ads": {}, "resourceApiVersion": "V3"}
STAND_IN = KeyPair(b"a certificate for this preflight", b"its key")
WITH_SECRETS = [
    each
    for each in cases("proxies")
    if each.id in {"proxies/gateway-over-tls", "proxies/services-outside-over-tls", "proxies/mtls-strict"}
]
SHOP = [
    keyed(each)
    for each in yaml.safe_load_all("""
type: Dataplane
mesh: default
name: web-1
networking:
  address: 127.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web}}]
  outbound: [{port: 10001, tags: {kuma.io/service: api}}]
---
type: Dataplane
mesh: default
name: api-1
networking:
  address: 127.0.0.1
  inbound: [{port: 8081, tags: {kuma.io/service: api, kuma.io/protocol: http}}]
---
type: Dataplane
mesh: default
name: edge-1
networking:
  address: 127.0.0.1
  gateway: {type: BUILTIN, tags: {kuma.io/service: edge}}
---
type: MeshGateway
mesh: default
name: edge
selectors: [{match: {kuma.io/service: edge}}]
conf:
  listeners: [{port: 10080, protocol: HTTP}]
---
type: MeshHTTPRoute
mesh: default
name: api
spec:
  targetRef: {kind: MeshGateway, name: edge}
  to:
  - targetRef: {kind: Mesh}
    rules:
    - matches: [{path: {type: PathPrefix, value: /}}]
      default: {backendRefs: [{kind: MeshService, name: api}]}
""")
]
"""A caller and a gateway, and what both of them call."""


@pytest.mark.parametrize("mode", ["STRICT", "PERMISSIVE"])
def test_an_envoy_judges_the_first_switch_of_a_mesh_to_mtls(mode: str) -> None:
    outcome = said(*proxies_of(mesh(mode=mode), *SHOP))

    assert (outcome.refused, limits_alone(outcome), outcome.proxies) == ((), True, 3)


def test_what_is_wrong_in_the_first_switch_is_still_refused() -> None:
    (refused, *_) = said(*proxies_of(mesh(), *SHOP, keyed(REFUSED))).refused

    assert "MaxEjectionPercent" in refused.reason


@pytest.mark.parametrize("case", WITH_SECRETS)
def test_an_envoy_waits_for_no_secret_that_proxies_are_served(case: Case) -> None:
    assert said(golden_proxy(case)).refused == ()


def test_an_envoy_is_shown_no_key_of_a_mesh() -> None:
    """Neither at the first switch, nor where there are roots already: only these are shown then."""
    pair, signer = new_authority()
    before, after = shown_at(provided(pair)), shown_at(provided(pair), trusting(signer))

    assert set(before) == set(after) == {"identity_cert:secret:default", "mesh_ca:secret:default"}
    assert all(STAND_IN.key in shown["identity_cert:secret:default"] for shown in (before, after))
    assert not any(b"PRIVATE KEY" in body for body in (*before.values(), *after.values()))
    assert [signer.certificates.encode() in shown["mesh_ca:secret:default"] for shown in (before, after)] == [
        False,
        True,
    ]


def shown_at(switched: Document, *trusted: Document) -> dict[str, bytes]:
    """The secrets that an Envoy is shown."""
    rounds = Rounds(STAND_IN).of(proxies_of(switched, *trusted, *SHOP)).rounds
    return {packed.name: packed.body for each in rounds for packed in each.resources if packed.type_url == SECRET}


@pytest.mark.parametrize(
    ("cluster", "type_", "name"),
    [
        ({"type": "EDS", "edsClusterConfig": {"edsConfig": ADS}}, "endpoints", "c"),
        (
            {
                "type": "STATIC",
                "transportSocket": {
                    "name": "tls",
                    "typedConfig": {
                        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                        "commonTlsContext": {"tlsCertificateSdsSecretConfigs": [{"name": "mine", "sdsConfig": ADS}]},
                    },
                },
            },
            "secrets",
            "mine",
        ),
    ],
    ids=["endpoints", "secret"],
)
def test_what_a_policy_refers_to_and_nobody_is_served_is_told(cluster: dict[str, Any], type_: str, name: str) -> None:
    outcome = said(*worlds_proxies(dataplane(), added(**cluster)))

    assert (outcome.refused, [(each.type, each.name) for each in outcome.unseen]) == ((), [(type_, name)])
    assert "no proxy is served it" in outcome.unseen[0].reason


def test_an_envoy_needs_no_file_of_the_machine_for_what_proxies_trust_by_themselves() -> None:
    """Services outside the mesh are verified with the roots of the proxies' machines."""
    files = [text for text in _texts(scratch_config()) if text.startswith("/")]

    assert set(files) == {"/ads", "/dev/null", "/roots.pem", "/scratch/admin"}


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from _texts(value)

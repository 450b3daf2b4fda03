"""What a control plane counts of itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.mesh import mesh_service, policy, request_timeout, service_item
from tests.support.playground import Playground
from tests.support.waiting import eventually

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(koguma_\w+)` \|", re.MULTILINE)
PART = re.compile(r"_(bucket|sum|count)$")

pytestmark = pytest.mark.envoy


def timeout(value: str) -> dict[str, object]:
    return dict(policy("MeshTimeout", "edited", service_item("backend", request_timeout(value))))


@pytest.mark.long
def test_a_change_is_counted_all_the_way_and_every_series_is_documented(empty_mesh: Playground) -> None:
    empty_mesh.control_plane.apply(mesh_service("backend"), mesh_service("other"), timeout("1s"))
    empty_mesh.service("backend")
    for name in ("one", "two"):
        empty_mesh.client(name, "backend")
    empty_mesh.client("bystander", "other")
    empty_mesh.ready()
    eventually(lambda: empty_mesh.control_plane.metrics()['koguma_proxies{state="in sync"}'] == 4)
    in_sync = 'koguma_dataplanes{mesh="default",state="in sync"}'
    eventually(lambda: empty_mesh.control_plane.metrics().get(in_sync) == 4)
    before = empty_mesh.control_plane.metrics()

    empty_mesh.control_plane.apply(timeout("2s"))
    eventually(
        lambda: (
            empty_mesh.control_plane.metrics()["koguma_change_to_ack_seconds_count"]
            == before["koguma_change_to_ack_seconds_count"] + 2
        )
    )

    after = empty_mesh.control_plane.metrics()
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert {name: by for name, by in grown.items() if "messages_sent" in name or "resources_sent" in name} == {
        'koguma_ads_messages_sent_total{stream="delta",type="routes"}': 1,
        'koguma_ads_messages_sent_total{stream="sotw",type="routes"}': 1,
        'koguma_ads_resources_sent_total{stream="delta",type="routes"}': 1,
        'koguma_ads_resources_sent_total{stream="sotw",type="routes"}': 1,
    }
    assert grown['koguma_ads_acks_total{type="routes"}'] == 2
    assert grown["koguma_fragments_built_total"] == 3, (
        "an outbound for each, as their addresses differ, and one cluster"
    )
    assert grown["koguma_world_revision"] == 1
    assert {kind: after[f'koguma_ads_streams{{stream="{kind}"}}'] for kind in ("delta", "sotw")} == {
        "delta": 2,
        "sotw": 2,
    }
    assert after['koguma_world_resources{kind="Dataplane"}'] == 4
    assert after["koguma_classes"] == 4, "none has the same outbounds as another, as their addresses differ"
    assert "koguma_event_loop_lag_max_seconds" in after

    served = {PART.sub("", name.partition("{")[0]) for name in after if name.startswith("koguma_")}
    documented = set(ROW.findall(PAGE.read_text()))
    assert served <= documented
    assert documented - served <= {  # those that count what did not happen here
        "koguma_ads_streams_refused_total",
        "koguma_ads_nacks_total",
        "koguma_api_limited_total",
        "koguma_mesh_late_seconds",
        "koguma_preflight_available",
        "koguma_preflights_waiting",
        "koguma_certificates_remaining_ratio",
        "koguma_certificates_remaining_seconds",
        "koguma_findings",
        "koguma_store_errors_total",
        "koguma_self_checks_total",
        "koguma_spans_total",
    }

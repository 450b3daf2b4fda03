"""What one proxy is served, for people to read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from typing import NoReturn

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from google.protobuf.any_pb2 import Any as AnyMessage

from cp.api.envoy_json import as_data, short_names
from cp.api.work import WorkQueue, WorkQueues
from cp.api.work_budget import WorkBudget
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.serving.delivery import ChangeProgress, Delivery, NackReport
from cp.translate.packing import CLUSTER, SECRET, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from tests.api.conftest import Api, FixedState, NobodyThere, Unit
from tests.api.samples import dataplane

CONFIG = "/meshes/default/dataplanes/web-1/_config"


def of_clusters(*names: str) -> Snapshot:
    messages = [Cluster(name=name) for name in names]
    return Snapshot(SnapshotPart(PackedResource.of(CLUSTER, one.name, one.SerializeToString()) for one in messages))


def serving(start: Unit, api: Api, snapshot: Snapshot) -> Api:
    """An API of a control plane that serves this to everybody."""
    api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    return start(store=api.store, state=FixedState(api.world(), served=snapshot))


def test_the_configuration_of_a_proxy_is_shown_by_type_and_name(start: Unit, api: Api) -> None:
    answer = serving(start, api, of_clusters("b", "a")).get(CONFIG).json()

    assert answer["xds"][CLUSTER] == {"a": {"name": "a"}, "b": {"name": "b"}}


def test_a_proxy_that_is_not_there_is_answered_with_the_one_that_was_meant(start: Unit, api: Api) -> None:
    serving_api = serving(start, api, of_clusters())

    assert "did you mean `web-1`" in serving_api.get("/meshes/default/dataplanes/web-2/_config").json()["detail"]
    assert "did you mean `default`" in serving_api.get("/meshes/defalt/dataplanes/web-1/_config").json()["detail"]


def test_a_private_key_is_never_shown() -> None:
    secret = Secret(name="identity")
    secret.tls_certificate.private_key.inline_string = "PRIVATE"
    secret.tls_certificate.certificate_chain.inline_string = "PUBLIC"
    snapshot = Snapshot(SnapshotPart([PackedResource.of(SECRET, secret.name, secret.SerializeToString())]))

    shown = as_data(snapshot)[SECRET]["identity"]["tlsCertificate"]

    assert shown == {"certificateChain": {"inlineString": "PUBLIC"}, "privateKey": {"inlineString": "[redacted]"}}


def test_an_extension_that_nothing_of_ours_uses_is_shown_too() -> None:
    type_url = "type.googleapis.com/envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig"
    cluster = Cluster(name="a")
    cluster.typed_extension_protocol_options["x"].CopyFrom(AnyMessage(type_url=type_url))
    snapshot = Snapshot(SnapshotPart([PackedResource.of(CLUSTER, "a", cluster.SerializeToString())]))

    assert as_data(snapshot)[CLUSTER]["a"]["typedExtensionProtocolOptions"] == {"x": {"@type": type_url}}


def test_types_of_which_there_is_nothing_are_left_out_of_the_short_form() -> None:
    assert short_names(as_data(of_clusters("a"))) == {"clusters": {"a": {"name": "a"}}}


class Busy(NobodyThere):
    """A control plane that does not come to answer what is asked of its proxies."""

    async def delivery(self, dataplane: Key) -> Delivery:
        return await never()

    async def nack_reports(self) -> Iterable[NackReport]:
        return await never()

    async def progress(
        self, revisions: Collection[int], resources: Collection[Key], within: float
    ) -> AsyncIterator[ChangeProgress]:
        yield await never()


class BusyState(FixedState):
    async def snapshot(self, dataplane: Resource, *, is_certified_client: bool) -> Snapshot:
        return await never()


async def never() -> NoReturn:
    async with asyncio.timeout(5):
        await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("path", [CONFIG, "/meshes/default/dataplanes/web-1/_delivery", "/_lint", "/_delivery"])
def test_who_waits_for_what_proxies_are_served_waits_for_so_long(start: Unit, api: Api, path: str) -> None:
    api.put("/meshes/default/dataplanes/web-1", dataplane()).raise_for_status()
    works = WorkQueues(questions=WorkQueue("questions", WorkBudget(seconds=0.05)))
    busy = start(store=api.store, state=BusyState(api.world()), observed=Busy(), works=works)

    answer = busy.get(path)
    works.close()

    assert (answer.status_code, answer.json()["title"]) == (503, "Too busy")


def test_a_page_ends_early_where_a_policy_has_many_values(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("web-1", "web-2"):
        api.put(f"/meshes/default/dataplanes/{name}", dataplane(name)).raise_for_status()
    conf = {"idleTimeout": "1s"}
    spec = {"rules": [{"default": conf}]}
    policy = {"type": "MeshTimeout", "mesh": "default", "name": "slow", "spec": spec}
    api.put("/meshes/default/meshtimeouts/slow", policy).raise_for_status()
    monkeypatch.setattr("cp.api.inspect._MOST_VALUES", 1, raising=False)
    asked = Api(api._runner, store=api.store, state=FixedState(api.world()))

    first = asked.get("/meshes/default/meshtimeouts/slow/_resources/dataplanes").json()
    second = asked.get(first["next"]).json()

    assert [one["name"] for one in (*first["items"], *second["items"])] == ["web-1", "web-2"]
    assert (len(first["items"]), first["total"], second["next"]) == (1, 2, None)

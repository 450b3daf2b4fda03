"""What holds of every golden case of MeshProxyPatch, and no case can show."""

from __future__ import annotations

from collections import Counter

import pytest
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
    HttpFilter,
)
from google.protobuf.message import Message

from cp.policies.mesh_proxy_patch import POLICY, changes
from cp.policies.mesh_proxy_patch.schema import Conf, FilterMatch, Modification, PatchChange
from cp.translate.packing import TYPES
from generators.drafts import Built
from generators.envoy import edit
from generators.proxy import Sidecar
from tests.golden import Case, cases
from tests.snapshots import Question

CASES = [case for case in cases("policies") if "mesh_proxy_patch" in str(case.id)]


@pytest.mark.parametrize("case", CASES)
def test_no_name_is_served_twice(case: Case) -> None:
    """What is added belongs to the proxy alone, and what had its name may belong to all proxies of a class."""
    snapshot = Question.of(case).snapshot()

    counts = {type_url: Counter(snapshot.names(type_url)) for type_url in TYPES}
    assert not [name for names in counts.values() for name, count in names.items() if count > 1]


def test_added_filters_pack_their_chain_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one packing for each of them, the cost would be the square of their number."""
    manager = HttpConnectionManager(http_filters=[HttpFilter(name="envoy.filters.http.router")])
    packed = Filter(name="manager")
    packed.typed_config.Pack(manager)
    built = Built(Sidecar(), [Listener(name="listener", filter_chains=[FilterChain(filters=[packed])])])
    packings: list[Message] = []

    def pack(message: Message) -> object:
        packings.append(message)
        return edit.pack(message)

    monkeypatch.setattr(changes, "pack", pack)
    added = PatchChange[FilterMatch](operation="AddLast", value="name: added")

    conf = Conf(append_modifications=[Modification(http_filter=added)] * 500)
    POLICY.finish(conf, built)

    assert len(packings) == 1
    assert len(built.used) == 500

"""What a call comes to is what the documents say: random meshes, each call held against a second implementation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot
from tests.oracle import envoy
from tests.oracle.destinations import UNCLEAR
from tests.oracle.reading import Resource, read
from tests.oracle.request import Answer, answer, is_judged, outbounds
from tests.oracle.routes import Call
from tests.random_mesh import DESTINATIONS, PATHS, Mesh, dataplanes, for_meshes
from tests.snapshots import policies

KINDS: Final = (*DESTINATIONS, "MeshTimeout", "MeshRetry")


def calls(proxy: Resource) -> Iterator[Call]:
    """Of every outbound: those that routes ask for, and some that they do not."""
    versions, queries = ((), (("x-version", "1"),)), ((), (("q", "2"),))
    for data in outbounds(proxy):
        for path, method, headers, query in product((*PATHS, "/apis"), ("GET", "POST"), versions, queries):
            yield Call(data.get("address", "127.0.0.1"), data["port"], method, path, headers, query)


@for_meshes(KINDS, times=2, also=(7000020020,))
def test_every_call_goes_where_the_documents_send_it(mesh: Mesh) -> None:
    world, documents, compiler = mesh.world(), read(mesh.documents), Compiler(policies())
    for dataplane in dataplanes(world):
        proxy = documents.get("Dataplane", dataplane.name)
        assert proxy is not None
        if is_judged(proxy):
            snapshot = compiler.snapshot(world, dataplane)
            for call in calls(proxy):
                expected = answer(documents, proxy, call)
                actual = of_served(snapshot, call, expected)
                is_so = expected in (UNCLEAR, actual)
                assert is_so, f"{proxy.stored}: {call}\n  is served {actual}\n  documents {expected}"


def of_served(snapshot: Snapshot, call: Call, expected: Answer | str) -> Answer | str:
    """What is served, less what the documents do not say."""
    answer = envoy.served(snapshot, call)
    is_open = isinstance(expected, Answer) and expected.retry is not None and expected.retry["retryOn"] is None
    if not is_open or isinstance(answer, str) or answer.retry is None:
        return answer
    return replace(answer, retry={**answer.retry, "retryOn": None})

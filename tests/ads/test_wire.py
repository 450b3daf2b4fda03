"""Bytes on the stream are what Envoy's own messages say they are."""

from __future__ import annotations

import math

import pytest
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from cp.ads.connection import ConnectionRecord
from cp.ads.session.messages import MOST_NAMES, DeltaRequest, Node, ProtocolViolation, Response, SotwRequest
from cp.ads.session.name_sets import NameSets
from cp.ads.session.wire import (
    MOST_LEVELS,
    decoded,
    decoded_delta,
    encoded,
    encoded_delta,
    encoded_names,
    node_of,
    node_of_delta,
)
from cp.model.names import Key
from cp.serving.delivery import Presence, ProxyState
from cp.serving.delivery.nacks import without_dump
from cp.serving.workers.messages import presences_message, presences_of
from cp.translate.packing import CLUSTER, SECRET, ResourceBatch
from koguma.v1 import workers_pb2 as pb
from tests.ads.content import cluster


def _nested(levels: int) -> Value:
    value = Value(string_value="x")
    for _ in range(levels):
        outer = Value()
        outer.list_value.values.append(value)
        value = outer
    return value


TWO = ResourceBatch([cluster("a"), cluster("b")])


def test_node_of_envoy_is_known_by_its_agent() -> None:
    assert [Node("a", user_agent=name).is_envoy for name in ("envoy", "gRPC-Python", "")] == [True, False, False]


def test_a_response_is_what_protobuf_would_write() -> None:
    message = DiscoveryResponse(version_info="v", type_url=CLUSTER, nonce="n")
    for packed in TWO:
        message.resources.add(type_url=CLUSTER, value=packed.body)

    assert DiscoveryResponse.FromString(encoded(Response(CLUSTER, "v", "n", (TWO,)))) == message


def test_a_delta_response_is_what_protobuf_would_write() -> None:
    message = DeltaDiscoveryResponse(system_version_info="v", type_url=CLUSTER, nonce="n", removed_resources=["c", "d"])
    for packed in TWO:
        resource = message.resources.add(name=packed.name, version=packed.version)
        resource.resource.type_url, resource.resource.value = CLUSTER, packed.body

    assert (
        DeltaDiscoveryResponse.FromString(encoded_delta(Response(CLUSTER, "v", "n", (TWO,), removed=("c", "d"))))
        == message
    )


@pytest.mark.parametrize("encode", [encoded, encoded_delta])
def test_several_batches_make_one_response(encode: type) -> None:
    parts = (ResourceBatch([cluster("a")]), ResourceBatch([cluster("b")]))

    assert encode(Response(CLUSTER, "v", "n", parts)) == encode(Response(CLUSTER, "v", "n", (TWO,)))


@pytest.mark.parametrize("encode", [encoded, encoded_delta])
def test_many_resources_are_put_together_once_for_all_messages_in_which_there_are_others_too(encode: type) -> None:
    many = ResourceBatch([cluster(f"c{number}") for number in range(100)])

    first = encode(Response(CLUSTER, "v", "n", (many, ResourceBatch([cluster("a")]))))

    body = many.body(delta=encode is encoded_delta)
    assert many.body(delta=encode is encoded_delta) is body
    assert first == encode(Response(CLUSTER, "v", "n", (ResourceBatch([*many, cluster("a")]),)))


def test_equal_responses_are_one_object_and_others_are_not() -> None:
    first = encoded(Response(CLUSTER, "v", "n", (TWO,)))

    assert encoded(Response(CLUSTER, "v", "n", (TWO,))) is first
    assert encoded(Response(CLUSTER, "v", "other", (TWO,))) != first
    assert encoded_delta(Response(CLUSTER, "v", "n", (TWO,))) != first


def test_a_request_is_read() -> None:
    message = DiscoveryRequest(version_info="v", type_url=CLUSTER, response_nonce="n", resource_names=["a", "b"])
    message.error_detail.message = "no"

    assert decoded(message.SerializeToString(), NameSets(encoded_names)) == SotwRequest(
        CLUSTER, frozenset("ab"), "n", "v", "no"
    )


def test_a_request_without_an_error_has_none() -> None:
    assert decoded(DiscoveryRequest(type_url=CLUSTER).SerializeToString(), NameSets(encoded_names)).error is None


def test_an_error_without_a_text_is_an_error() -> None:
    message = DiscoveryRequest(type_url=CLUSTER)
    message.error_detail.SetInParent()

    assert decoded(message.SerializeToString(), NameSets(encoded_names)).error == ""


def test_a_delta_request_is_read() -> None:
    message = DeltaDiscoveryRequest(
        type_url=CLUSTER,
        response_nonce="n",
        resource_names_subscribe=["a"],
        resource_names_unsubscribe=["b"],
        initial_resource_versions={"c": "1"},
    )

    assert decoded_delta(message.SerializeToString(), NameSets(encoded_names)) == DeltaRequest(
        CLUSTER, frozenset("a"), frozenset("b"), {"c": "1"}, "n"
    )


def test_the_node_is_read_with_its_metadata_and_its_version() -> None:
    message = DiscoveryRequest()
    message.node.id, message.node.cluster = "default.web-1", "web"
    message.node.metadata["dataplane.resource"] = "{}"
    message.node.metadata["koguma.io/owner"] = "run-1"
    message.node.metadata["workdir"] = "/work"
    message.node.metadata.get_or_create_struct("version")["kumaDp"] = "2.14"
    version = message.node.user_agent_build_version.version
    version.major_number, version.minor_number, version.patch = 1, 40, 2
    metadata = {"version": {"kumaDp": "2.14"}, "koguma.io/owner": "run-1", "dataplane.resource": "{}"}
    node = Node("default.web-1", "web", "1.40.2", metadata)

    assert node_of(message.SerializeToString()) == node
    assert node_of_delta(DeltaDiscoveryRequest(node=message.node).SerializeToString()) == node


def test_a_request_without_a_node_has_none() -> None:
    assert node_of(DiscoveryRequest(type_url=CLUSTER).SerializeToString()) is None


def test_what_is_not_a_request_is_not_read() -> None:
    with pytest.raises(DecodeError):
        decoded(b"\xff\xff\xff", NameSets(encoded_names))


def test_what_a_client_says_is_wrong_with_a_secret_repeats_nothing_of_it() -> None:
    message = DiscoveryRequest(type_url=SECRET)
    message.error_detail.message = 'goo.gle/debugonly tls_certificate { private_key {\n "KEY" } } : no certificate'

    assert (
        decoded(message.SerializeToString(), NameSets(encoded_names)).error
        == "goo.gle/debugonly tls_certificate {…} : no certificate"
    )
    message.error_detail.message = 'goo.gle/debugonly tls_certificate { private_key {\n "KEY", which was cut o'
    assert (
        decoded(message.SerializeToString(), NameSets(encoded_names)).error == "goo.gle/debugonly tls_certificate {…}"
    )
    message.type_url = CLUSTER
    assert "tls_certificate { private_key {" in (
        decoded(message.SerializeToString(), NameSets(encoded_names)).error or ""
    )


@pytest.mark.parametrize("type_url", [CLUSTER, SECRET])
@pytest.mark.parametrize("text", ["{" * 3_000_000, "x" * 3_000_000, "goo.gle/a " * 300_000, "}{" * 1_500_000])
def test_what_a_client_says_is_wrong_is_cut_before_anything_else_is_made_of_it(type_url: str, text: str) -> None:
    """A text of some megabytes took minutes: with the time limit of tests this fails where it is not linear."""
    message = DiscoveryRequest(type_url=type_url)
    message.error_detail.message = text
    error = decoded(message.SerializeToString(), NameSets(encoded_names)).error or ""

    assert len(error) < 10_000
    assert len(without_dump(error)) < 10_000


def test_of_a_long_text_the_beginning_and_the_end_are_kept() -> None:
    message = DiscoveryRequest(type_url=CLUSTER)
    message.error_detail.message = f"first{'x' * 100_000}last"
    error = decoded(message.SerializeToString(), NameSets(encoded_names)).error or ""

    assert error.startswith("first")
    assert error.endswith("last")


def test_what_a_proxy_says_of_itself_is_not_kept_whatever_its_size() -> None:
    message = DiscoveryRequest()
    message.node.id, message.node.cluster = "default.web-1", "c" * 100_000
    message.node.metadata["filling"] = "x" * 3_000_000
    message.node.metadata["version"] = "x" * 3_000_000
    node = node_of(message.SerializeToString())

    assert node is not None
    assert node.metadata == {}
    assert len(node.cluster) < 10_000


@pytest.mark.parametrize("field", ["version", "koguma.io/owner", "dataplane.resource"])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Value(number_value=math.nan), id="no number"),
        pytest.param(Value(number_value=-math.inf), id="no finite number"),
        pytest.param(_nested(MOST_LEVELS + 1), id="nested deeply"),
        pytest.param(_nested(46), id="nested as deeply as protobuf allows in a request, but not in a frame"),
    ],
)
def test_what_a_proxy_says_of_itself_is_not_kept_if_it_cannot_be_told_others(field: str, value: Value) -> None:
    message = DiscoveryRequest()
    message.node.id = "default.web-1"
    message.node.metadata.fields[field].CopyFrom(value)
    node = node_of(message.SerializeToString())

    assert node == Node("default.web-1", "", "0.0.0", {})


def test_what_a_proxy_says_of_itself_reaches_other_processes_however_it_is_nested() -> None:
    message = DiscoveryRequest()
    message.node.id = "default.web-1"
    message.node.metadata.fields["version"].CopyFrom(_nested(MOST_LEVELS))
    node = node_of(message.SerializeToString())

    assert node is not None
    assert "version" in node.metadata
    presence = Presence(ProxyState.ONLINE, 0.0, (ConnectionRecord(node, "sotw", 0.0, None, 0.0, ()),))
    presences = {Key("Dataplane", "default", "web-1"): presence}
    frame = pb.Frame(number=1, answer=pb.Answer(presences=presences_message(presences)))
    assert presences_of(pb.Frame.FromString(frame.SerializeToString()).answer.presences) == presences


def test_a_proxy_of_an_endless_name_is_refused() -> None:
    message = DiscoveryRequest()
    message.node.id = "x" * 100_000

    with pytest.raises(ProtocolViolation, match="100000 characters"):
        node_of(message.SerializeToString())


def test_a_request_with_very_many_names_is_refused() -> None:
    names = [""] * (MOST_NAMES + 1)
    held = {str(number): "" for number in range(MOST_NAMES + 1)}

    with pytest.raises(ProtocolViolation, match="names"):
        decoded(DiscoveryRequest(resource_names=names).SerializeToString(), NameSets(encoded_names))
    for message in (
        DeltaDiscoveryRequest(resource_names_subscribe=names),
        DeltaDiscoveryRequest(resource_names_unsubscribe=names),
        DeltaDiscoveryRequest(initial_resource_versions=held),
    ):
        with pytest.raises(ProtocolViolation, match="names"):
            decoded_delta(message.SerializeToString(), NameSets(encoded_names))

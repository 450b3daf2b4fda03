"""A mesh in which nobody wrote a policy: what fails is asked again, until somebody says otherwise."""

from collections.abc import Iterator
from contextlib import ExitStack
from http import HTTPStatus

import pytest

from tests.support.client import Conversation, call
from tests.support.control_plane import ControlPlane
from tests.support.mesh import Document, gateway_route, listener, mesh_gateway, mesh_service, policy, prefix, rule
from tests.support.playground import Playground, retries
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

PATH = "/some"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    """The Mesh `default` as a new control plane makes it."""
    folder = tmp_path_factory.mktemp("mesh")
    with ExitStack() as stack:
        settings = {"KUMA_DEFAULTS_SKIP_MESH_CREATION": "false"}
        found = Playground(stack.enter_context(ControlPlane(folder, **settings)), folder, stack)
        found.control_plane.apply(mesh_service("backend"))
        found.service("backend")
        found.client("frontend", "backend")
        edge = found.gateway("edge")
        found.control_plane.apply(
            mesh_gateway("edge", listener(edge.port("web"))),
            gateway_route("all", "edge", rule(prefix("/"), to={"backend": 1})),
        )
        found.ready()
        yield found


def held(mesh: Playground, retried: int | None) -> None:
    eventually(lambda: retries(mesh.envoys["frontend"]) == {"/": retried})


def asked(mesh: Playground, failures: int) -> tuple[int, int]:
    """The status of a call to a service that fails so often, and how often the service was asked."""
    service = mesh.services["backend"]
    service.on(PATH, failures=failures)
    return call(mesh.proxies["frontend"].outbound(), PATH).status, service.hits(PATH)


def for_everything(default: Document) -> Document:
    return policy("MeshRetry", "zzz", {"targetRef": {"kind": "Mesh"}, "default": default})


def test_a_service_that_fails_is_asked_up_to_five_times_more(mesh: Playground) -> None:
    held(mesh, 5)

    assert asked(mesh, failures=2) == (200, 3)


def test_what_somebody_wrote_for_the_mesh_is_stronger_whatever_its_name(mesh: Playground) -> None:
    with mesh.having(for_everything({"http": {"numRetries": 1}})):
        held(mesh, 1)

        assert asked(mesh, failures=9) == (503, 2)


def test_a_default_policy_can_be_deleted(mesh: Playground) -> None:
    default = {"type": "MeshRetry", "mesh": "default", "name": "mesh-retry-all-default"}
    before = mesh.control_plane.find(default)
    assert before is not None
    mesh.control_plane.delete(default)
    try:
        held(mesh, None)
        assert asked(mesh, failures=1) == (503, 1)
    finally:
        mesh.control_plane.apply(before)


def test_a_gateway_asks_again_too_and_does_not_wait_for_its_clients(mesh: Playground) -> None:
    service, edge = mesh.services["backend"], mesh.proxies["edge"].outbound("web")
    eventually(lambda: retries(mesh.envoys["edge"]) == {"/": 5})
    service.on(PATH, failures=2)

    assert call(edge, PATH).status == HTTPStatus.OK
    with Conversation(edge) as conversation:
        conversation.say("GET / HTTP/1.1\r\n")
        assert "408" in conversation.until_closed()[1]

"""The example of docs/concepts/matching-and-merging.md#an-example on real Envoys."""

import pytest

from tests.support.client import TICK, call
from tests.support.mesh import mesh_service, policy, request_timeout, route_item, service_item
from tests.support.playground import Playground, timeouts
from tests.support.waiting import eventually

# The rows of the demo are shorter: two frontends with a time-out of each path.
pytestmark = [pytest.mark.envoy, pytest.mark.long]

SLOW, ELSE = "/slow-endpoint", "/"
NEVER = 5.0

ROUTE = """
type: MeshHTTPRoute
name: route-to-backend
mesh: default
spec:
  to:
    - targetRef:
        kind: MeshService
        name: backend
      rules:
        - matches:
            - path:
                type: PathPrefix
                value: "/slow-endpoint"
          default:
            backendRefs:
              - kind: MeshService
                name: backend
"""
ON_SERVICE = policy(
    "MeshTimeout",
    "timeout-on-backend-service",
    service_item("backend", {"connectionTimeout": "2s", **request_timeout("400ms")}),
)
ON_ROUTE = policy("MeshTimeout", "timeout-on-backend-route", route_item("route-to-backend", request_timeout("800ms")))
TAGGED = {"kind": "MeshSubset", "tags": {"services-group": "frontend"}}
ON_SERVICE_OVERRIDE = policy(
    "MeshTimeout",
    "timeout-on-backend-service-override",
    service_item("backend", request_timeout("200ms")),
    target=TAGGED,
)
ON_ROUTE_OVERRIDE = policy(
    "MeshTimeout",
    "timeout-on-backend-route-override",
    route_item("route-to-backend", request_timeout("1200ms")),
    target=TAGGED,
)

UNTAGGED_GETS = {SLOW: "0.800s", ELSE: "0.400s"}
TAGGED_GETS = {SLOW: "1.200s", ELSE: "0.200s"}


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    """The document's resources, two frontends, of which one has the tag, and two instances of the backend."""
    everything = (ON_SERVICE, ON_ROUTE, ON_SERVICE_OVERRIDE, ON_ROUTE_OVERRIDE)
    empty_mesh.control_plane.apply(mesh_service("backend"), ROUTE, *everything)
    for version in ("v1", "v2"):
        service = empty_mesh.service(f"backend-{version}", "backend", version=version)
        for path in (SLOW, f"{SLOW}/below", ELSE, "/slow-endpoints"):
            service.on(path, delay=NEVER)
    empty_mesh.client("untagged", "backend")
    empty_mesh.client("tagged", "backend", services__group="frontend")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture(autouse=True)
def undisturbed(mesh: Playground) -> None:
    """Each test begins with what the document's resources come to."""
    eventually(lambda: timeouts(mesh.envoys["untagged"]) == UNTAGGED_GETS)
    eventually(lambda: timeouts(mesh.envoys["tagged"]) == TAGGED_GETS)


@pytest.mark.parametrize(
    ("frontend", "path", "seconds"),
    [
        ("untagged", SLOW, 0.8),
        ("untagged", f"{SLOW}/below", 0.8),
        ("untagged", ELSE, 0.4),
        ("untagged", "/slow-endpoints", 0.4),
        ("tagged", SLOW, 1.2),
        ("tagged", ELSE, 0.2),
    ],
)
def test_each_frontend_gets_its_own_timeout_on_each_path(
    mesh: Playground, frontend: str, path: str, seconds: float
) -> None:
    answer = call(mesh.proxies[frontend].outbound(), path)

    assert answer.status == 504
    assert answer.seconds >= seconds - TICK


def test_an_answer_in_time_is_passed_on(mesh: Playground) -> None:
    answers = [call(mesh.proxies["untagged"].outbound(), "/at-once") for _ in range(20)]

    assert {answer.status for answer in answers} == {200}
    assert {answer.service for answer in answers} == {"backend-v1", "backend-v2"}


def test_without_the_route_its_requests_get_the_timeout_of_the_service(mesh: Playground) -> None:
    mesh.control_plane.delete(ROUTE)
    try:
        eventually(lambda: timeouts(mesh.envoys["untagged"]) == {ELSE: "0.400s"})
        eventually(lambda: timeouts(mesh.envoys["tagged"]) == {ELSE: "0.200s"})

        assert call(mesh.proxies["untagged"].outbound(), SLOW).seconds >= 0.4 - TICK
        assert call(mesh.proxies["tagged"].outbound(), SLOW).seconds >= 0.2 - TICK
    finally:
        mesh.control_plane.apply(ROUTE)


def test_a_field_that_the_rule_of_the_route_leaves_out_is_the_services(mesh: Playground) -> None:
    idle_alone = policy(
        "MeshTimeout",
        "timeout-on-backend-route",
        route_item("route-to-backend", {"http": {"streamIdleTimeout": "1h"}}),
    )
    with mesh.having(idle_alone):
        eventually(lambda: timeouts(mesh.envoys["untagged"]) == {SLOW: "0.400s", ELSE: "0.400s"})

        assert call(mesh.proxies["untagged"].outbound(), SLOW).seconds >= 0.4 - TICK
        assert timeouts(mesh.envoys["tagged"]) == TAGGED_GETS


def test_a_zero_on_the_route_switches_the_services_timeout_off(mesh: Playground) -> None:
    off = policy("MeshTimeout", "timeout-on-backend-route", route_item("route-to-backend", request_timeout("0s")))
    mesh.services["backend-v1"].on(f"{SLOW}/long", delay=0.9)
    mesh.services["backend-v2"].on(f"{SLOW}/long", delay=0.9)
    with mesh.having(off):
        eventually(lambda: timeouts(mesh.envoys["untagged"]) == {SLOW: "0s", ELSE: "0.400s"})

        answer = call(mesh.proxies["untagged"].outbound(), f"{SLOW}/long")

    assert answer.status == 200
    assert answer.seconds >= 0.9 - TICK


def test_the_resource_rules_are_those_of_the_document(mesh: Playground) -> None:
    def rules(frontend: str) -> dict[str, tuple[object, list[str]]]:
        """The conf of each resource, and the policies that it was merged from."""
        answer = mesh.control_plane.get(f"/meshes/default/dataplanes/{frontend}/_rules")
        (timeout,) = [found for found in answer["rules"] if found["type"] == "MeshTimeout"]
        return {
            rule["resourceMeta"]["name"]: (rule["conf"], [origin["resourceMeta"]["name"] for origin in rule["origin"]])
            for rule in timeout["toResourceRules"]
        }

    conf_1, conf_2 = "timeout-on-backend-service", "timeout-on-backend-route"
    assert rules("untagged") == {
        "backend": ([{"connectionTimeout": "2s", "http": {"requestTimeout": "400ms"}}], [conf_1]),
        "route-to-backend": ([{"http": {"requestTimeout": "800ms"}}], [conf_2]),
    }
    conf_3, conf_4 = f"{conf_1}-override", f"{conf_2}-override"
    assert rules("tagged") == {
        "backend": ([{"connectionTimeout": "2s", "http": {"requestTimeout": "200ms"}}], [conf_1, conf_3]),
        "route-to-backend": ([{"http": {"requestTimeout": "1200ms"}}], [conf_2, conf_4]),
    }

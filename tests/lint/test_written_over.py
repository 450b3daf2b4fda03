"""Values over which policies of other kinds write are in force nowhere: held against what is served without them."""

from __future__ import annotations

from typing import Final

import pytest

from cp.insight.inspect import affected_proxies
from cp.insight.lint import lint
from cp.model.names import Key
from tests.lint.test_told import served
from tests.rules.worlds import SELF_CALLING, world_of
from tests.snapshots import policies

PATCH: Final = """---
type: MeshProxyPatch
mesh: default
name: patch
spec: {default: {appendModifications: [{cluster: {operation: Patch, ABOUT value: 'connectTimeout: 8s'}}]}}
"""

TIMEOUT: Final = """---
type: MeshTimeout
mesh: default
name: p
spec: {PART: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 3s}}]}
"""

BREAKER: Final = """---
type: MeshCircuitBreaker
mesh: default
name: breaker
spec: {to: [{targetRef: {kind: Mesh}, default: {outlierDetection: {detectors: {totalFailures: {}}THRESHOLD}}}]}
"""

CHECK: Final = """---
type: MeshHealthCheck
mesh: default
name: p
spec: {to: [{targetRef: {kind: Mesh}, default: {http: {}, healthyPanicThreshold: 50}}]}
"""

OF_CALLS: Final = TIMEOUT.replace("PART", "to")
OF_CLIENTS: Final = TIMEOUT.replace("PART", "from")
OF_ALL: Final = PATCH.replace("ABOUT ", "")
BY_PATCH: Final = "has no effect: a MeshProxyPatch writes another value in its place"
BY_BREAKER: Final = "has no effect: a MeshCircuitBreaker writes another value in its place"


def of_inbound(origin: str) -> str:
    return PATCH.replace("ABOUT ", f"match: {{origin: {origin}}}, ")


@pytest.mark.parametrize(
    ("policy", "field", "other", "expected"),
    [
        pytest.param(OF_CALLS, "connectionTimeout", "", "", id="a cluster without a patch"),
        pytest.param(OF_CALLS, "connectionTimeout", OF_ALL, BY_PATCH, id="a cluster"),
        pytest.param(OF_CALLS, "connectionTimeout", of_inbound("inbound"), "", id="a patch of another cluster"),
        pytest.param(OF_CLIENTS, "connectionTimeout", of_inbound("inbound"), BY_PATCH, id="an inbound"),
        pytest.param(OF_CLIENTS, "connectionTimeout", of_inbound("outbound"), "", id="a patch of no inbound"),
        pytest.param(
            CHECK,
            "healthyPanicThreshold",
            BREAKER.replace("THRESHOLD", ", healthyPanicThreshold: 30"),
            BY_BREAKER,
            id="a policy that comes later",
        ),
        pytest.param(CHECK, "healthyPanicThreshold", BREAKER.replace("THRESHOLD", ""), "", id="one that leaves it"),
    ],
)
def test_inspection_tells_which_policies_write_over_a_value(policy: str, field: str, other: str, expected: str) -> None:
    world = world_of(SELF_CALLING + policy + other)
    resource = next(one for one in world if one.kind.policy is not None and one.name == "p")
    (proxy,) = affected_proxies(world, resource)

    assert {effect.idle_reason for effect in proxy.effects if effect.path == field} == {expected}


@pytest.mark.parametrize("value", ["3s", "4s"])
def test_so_nothing_that_is_served_depends_on_it(value: str) -> None:
    """The judge of this file."""
    world = world_of(SELF_CALLING + OF_ALL + OF_CALLS.replace("3s", value))

    assert world.get(Key("MeshTimeout", "default", "p")) is not None
    assert served(world) == served(world_of(SELF_CALLING + OF_ALL))


ROWS: Final = """---
type: MeshProxyPatch
mesh: default
name: p
spec:
  default:
    appendModifications:
      - {virtualHost: {operation: Patch, ABOUT jsonPatches: [{op: remove, path: /routes/0}]}}
      - {virtualHost: {operation: Patch, ABOUT jsonPatches: [{op: remove, path: /routes/0}]}}
"""
ROUTE: Final = """---
type: MeshHTTPRoute
mesh: default
name: r
spec:
  to:
    - targetRef: {kind: MeshService, name: web}
      rules:
        - matches: [{path: {type: PathPrefix, value: /a}}]
          default: {filters: [{type: RequestRedirect, requestRedirect: {hostname: x}}]}
"""


@pytest.mark.parametrize(
    ("change", "told", "reasons"),
    [
        pytest.param(ROWS.replace("ABOUT ", ""), "is not made everywhere", {""}, id="to one of two"),
        pytest.param(
            ROWS.replace("ABOUT ", "match: {origin: inbound}, "), "has no effect", {"has no effect"}, id="to nothing"
        ),
    ],
)
def test_a_change_that_is_made_to_some_of_what_it_is_about_has_an_effect(
    change: str, told: str, reasons: set[str]
) -> None:
    """After the first one the inbound has no row left, and the outbound has another."""
    world = world_of(SELF_CALLING + ROUTE + change)
    patch = Key("MeshProxyPatch", "default", "p")
    resource = world.get(patch)
    assert resource is not None
    (proxy,) = affected_proxies(world, resource)
    second = "appendModifications[1]"

    of_second = [
        finding.message for finding in lint(policies(), world) if finding.resource == patch and second in finding.path
    ]
    assert [message.partition(":")[0] for message in of_second] == [told]
    idle_reasons = {effect.idle_reason.partition(":")[0] for effect in proxy.effects if effect.path == second}
    assert idle_reasons == reasons
    alone = change[: change.rindex("      - {virtualHost")]
    assert (served(world) == served(world_of(SELF_CALLING + ROUTE + alone))) is ("" not in reasons)


def statuses(text: str) -> dict[str, set[str]]:
    """What inspection tells of each field of the policy `p`, at any proxy; nothing where it is in force."""
    world = world_of(text)
    resource = next(one for one in world if one.kind.policy is not None and one.name == "p")
    told: dict[str, set[str]] = {}
    for proxy in affected_proxies(world, resource):
        for effect in proxy.effects:
            told.setdefault(effect.path, set()).add(effect.idle_reason)
    return told


LIMIT_OF_CALLS: Final = """---
type: MeshRateLimit
mesh: default
name: p
spec: {to: [{targetRef: {kind: Mesh}, default: {local: {http: {requestRate: {num: 1, interval: 1s}}}}}]}
"""


def test_a_limit_for_those_whom_gateways_call_is_in_force_at_no_sidecar() -> None:
    (reasons,) = {frozenset(reasons) for reasons in statuses(SELF_CALLING + LIMIT_OF_CALLS).values()}

    assert reasons == {"has no effect: gateways do it for those that they call, and this is no gateway"}
    assert served(world_of(SELF_CALLING + LIMIT_OF_CALLS)) == served(world_of(SELF_CALLING))


@pytest.mark.parametrize(
    ("disabled", "reason"), [("true", "`outlierDetection.disabled` switches it off"), ("false", "")]
)
def test_what_is_switched_off_is_not_in_force(disabled: str, reason: str) -> None:
    detection = f"disabled: {disabled}, interval: 7s, detectors: {{totalFailures: {{}}}}"
    text = SELF_CALLING + BREAKER.replace("detectors: {totalFailures: {}}THRESHOLD", detection).replace("breaker", "p")

    told = statuses(text)
    expected = f"has no effect: {reason}" if reason else ""
    assert told["outlierDetection.interval"] == told["outlierDetection.detectors.totalFailures"] == {expected}
    other = world_of(text.replace("interval: 7s", "interval: 8s"))
    assert (served(other) == served(world_of(text))) is bool(reason)


CHECK_OF_NOTHING: Final = """---
type: MeshHealthCheck
mesh: default
name: p
spec: {to: [{targetRef: {kind: Mesh}, default: {interval: 7s, http: {disabled: true}BESIDE}}]}
"""


@pytest.mark.parametrize(
    ("beside", "reason"), [("", "has no effect: `http.disabled` switches it off"), (", tcp: {}", "")]
)
def test_settings_of_checks_that_are_all_switched_off_are_not_in_force(beside: str, reason: str) -> None:
    text = SELF_CALLING + CHECK_OF_NOTHING.replace("BESIDE", beside)

    assert statuses(text)["interval"] == {reason}
    other = world_of(text.replace("interval: 7s", "interval: 8s"))
    assert (served(other) == served(world_of(text))) is bool(reason)


TRACE: Final = """---
type: MeshTrace
mesh: default
name: p
spec: {default: {sampling: {overall: 7}BESIDE}}
"""
ZIPKIN: Final = ", backends: [{type: Zipkin, zipkin: {url: 'http://zipkin:9411/api/v2/spans'}}]"


@pytest.mark.parametrize(
    ("beside", "reason"), [(", backends: []", "has no effect: there are no `backends`"), (ZIPKIN, "")]
)
def test_samples_that_nobody_gets_are_not_in_force(beside: str, reason: str) -> None:
    text = SELF_CALLING + TRACE.replace("BESIDE", beside)

    assert statuses(text)["sampling.overall"] == {reason}
    other = world_of(text.replace("overall: 7", "overall: 8"))
    assert (served(other) == served(world_of(text))) is bool(reason)


RETRIES: Final = """---
type: MeshRetry
mesh: default
name: p
spec: {to: [{targetRef: {kind: Mesh}, default: {http: {numRetries: RETRIES, perTryTimeout: 7s}}}]}
"""


@pytest.mark.parametrize(("retries", "reason"), [("0", "has no effect: `http.numRetries` switches it off"), ("1", "")])
def test_how_requests_are_tried_again_is_not_in_force_where_none_is(retries: str, reason: str) -> None:
    text = SELF_CALLING + RETRIES.replace("RETRIES", retries)

    assert statuses(text) == {"http.numRetries": {""}, "http.perTryTimeout": {reason}}
    other = world_of(text.replace("perTryTimeout: 7s", "perTryTimeout: 8s"))
    assert (served(other) == served(world_of(text))) is bool(reason)

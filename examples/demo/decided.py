"""Which policy decides how long a request may take, as the control plane tells it."""

from dataclasses import dataclass
from typing import Any

import httpx

from examples.demo.plan import Plan

SLOW = "/slow-endpoint"
ROUTE, SERVICE = "route-to-backend", "backend"


@dataclass(frozen=True, slots=True)
class Decision:
    """The policy that won, and its timeout as the merged conf has it."""

    policy: str
    timeout: str


def decisions(plan: Plan, client: httpx.Client) -> dict[tuple[str, str], Decision]:
    """Of each frontend, what holds for its slow route and what for everything else."""
    found = {}
    for sidecar in plan.sidecars:
        if sidecar.backend:
            answer = client.get(f"{plan.api}/meshes/default/dataplanes/{sidecar.name}/_rules").raise_for_status()
            rules = _of_resources(answer.json())
            found[sidecar.name, SLOW] = _decision(rules[ROUTE])
            found[sidecar.name, "/"] = _decision(rules[SERVICE])
    return found


def decision_at_edge(plan: Plan, client: httpx.Client, url: str) -> str:
    """What decides over a call that comes in at the gateway: the policy with its timeout, or else its route."""
    where = f"{plan.api}/meshes/default/dataplanes/{plan.edge.name}/_explain"
    explained = client.get(where, params={"call": f"GET {url}"}).raise_for_status().json()
    timeouts = [value["said"]["policy"] for value in explained["values"] if value["path"] == "http.requestTimeout"]
    routes = [row["owner"] for row in explained["rows"] if row["taken"]]
    return next(str(policy["name"]) for policy in (*timeouts, *routes) if policy is not None)


def _of_resources(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The timeouts' resource rules, by the name of what they are about."""
    (timeouts,) = [rules for rules in answer["rules"] if rules["type"] == "MeshTimeout"]
    return {rule["resourceMeta"]["name"]: rule for rule in timeouts["toResourceRules"]}


def _decision(rule: dict[str, Any]) -> Decision:
    """Origins stand in the order of merging, so the last one wins."""
    return Decision(rule["origin"][-1]["resourceMeta"]["name"], rule["conf"][0]["http"]["requestTimeout"])

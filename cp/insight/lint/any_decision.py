"""`AnyDecision`: every class of decisions, on sidecars and on gateways."""

from __future__ import annotations

from typing import TypeAlias

from cp.insight.lint.decisions import (
    AdmissionDecision,
    ClientDecision,
    ConfDecision,
    DestinationDecision,
    RouteTableDecision,
)
from cp.insight.lint.gateway_decisions import GatewayTableDecision

AnyDecision: TypeAlias = (
    ConfDecision | DestinationDecision | RouteTableDecision | ClientDecision | AdmissionDecision | GatewayTableDecision
)
"""A `Decision` of which the class can be asked for, as the reason of a finding depends on it."""

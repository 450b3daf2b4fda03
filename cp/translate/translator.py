"""`Translator`: from rules to results, for one outbound, backend or inbound at a time.

What it returns is a pure function of the World and the policies. Each result has the effective confs, which keep their
origins, beside the fragment that is built from them: inspection and serving look at the same computation.
"""

from __future__ import annotations

from cp.policies import Policies
from cp.resources.caller import Caller
from cp.translate.backend import BackendStage
from cp.translate.callers import Callers
from cp.translate.capture import CaptureStage
from cp.translate.effective import Rules
from cp.translate.fragments import FragmentCache
from cp.translate.gateway import GatewayStage
from cp.translate.inbound import InboundStage
from cp.translate.outbound import OutboundStage
from cp.translate.sidecar import SidecarStage
from cp.translate.trust import TrustStage


class Translator:
    """The stage of each result. They share the policies, and the fragments that there are."""

    def __init__(self, policies: Policies) -> None:
        self.fragments = FragmentCache(policies)
        self._of_grpc_clients = frozenset(policy.kind.name for policy in policies if policy.is_for_grpc_clients)
        self.callers = Callers(policies)
        self.outbounds = OutboundStage(policies, self.fragments)
        self.backends = BackendStage(policies, self.fragments)
        self.inbounds = InboundStage(policies, self.fragments)
        self.sidecars = SidecarStage(policies, self.fragments)
        self.captures = CaptureStage(policies, self.fragments)
        self.gateways = GatewayStage(policies, self.fragments)
        self.trusts = TrustStage(self.fragments)

    def rules_of_outbounds(self, rules: Rules, caller: Caller) -> Rules:
        """The rules that decide over what a caller calls: for a gRPC client those that it can do something of."""
        if not caller.is_grpc:
            return rules
        return rules.among(self._of_grpc_clients)

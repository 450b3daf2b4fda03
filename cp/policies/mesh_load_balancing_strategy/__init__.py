"""MeshLoadBalancingStrategy: which endpoint a request goes to.

    loadBalancer                                     Cluster.lb_policy
    loadBalancer.type                                which of these:
    loadBalancer.roundRobin                          ROUND_ROBIN
    loadBalancer.random                              RANDOM
    loadBalancer.leastRequest                        LEAST_REQUEST
    loadBalancer.leastRequest.choiceCount            LeastRequestLbConfig.choice_count
    loadBalancer.leastRequest.activeRequestBias      LeastRequestLbConfig.active_request_bias
    loadBalancer.ringHash                            RING_HASH
    loadBalancer.ringHash.hashFunction               RingHashLbConfig.hash_function
    loadBalancer.ringHash.minRingSize                RingHashLbConfig.minimum_ring_size
    loadBalancer.ringHash.maxRingSize                RingHashLbConfig.maximum_ring_size
    loadBalancer.ringHash.hashPolicies               deprecated, as hashPolicies below, with their fields:
    loadBalancer.ringHash.hashPolicies[].type
    loadBalancer.ringHash.hashPolicies[].terminal
    loadBalancer.ringHash.hashPolicies[].header
    loadBalancer.ringHash.hashPolicies[].header.name
    loadBalancer.ringHash.hashPolicies[].cookie
    loadBalancer.ringHash.hashPolicies[].cookie.name
    loadBalancer.ringHash.hashPolicies[].cookie.ttl
    loadBalancer.ringHash.hashPolicies[].cookie.path
    loadBalancer.ringHash.hashPolicies[].connection
    loadBalancer.ringHash.hashPolicies[].connection.sourceIP
    loadBalancer.ringHash.hashPolicies[].queryParameter
    loadBalancer.ringHash.hashPolicies[].queryParameter.name
    loadBalancer.ringHash.hashPolicies[].filterState
    loadBalancer.ringHash.hashPolicies[].filterState.key
    loadBalancer.maglev                              MAGLEV
    loadBalancer.maglev.tableSize                    MaglevLbConfig.table_size
    loadBalancer.maglev.hashPolicies                 deprecated, as hashPolicies below, with their fields:
    loadBalancer.maglev.hashPolicies[].type
    loadBalancer.maglev.hashPolicies[].terminal
    loadBalancer.maglev.hashPolicies[].header
    loadBalancer.maglev.hashPolicies[].header.name
    loadBalancer.maglev.hashPolicies[].cookie
    loadBalancer.maglev.hashPolicies[].cookie.name
    loadBalancer.maglev.hashPolicies[].cookie.ttl
    loadBalancer.maglev.hashPolicies[].cookie.path
    loadBalancer.maglev.hashPolicies[].connection
    loadBalancer.maglev.hashPolicies[].connection.sourceIP
    loadBalancer.maglev.hashPolicies[].queryParameter
    loadBalancer.maglev.hashPolicies[].queryParameter.name
    loadBalancer.maglev.hashPolicies[].filterState
    loadBalancer.maglev.hashPolicies[].filterState.key
    hashPolicies                                     RouteAction.hash_policy, TcpProxy.hash_policy
    hashPolicies[].type                              which of these:
    hashPolicies[].terminal                          HashPolicy.terminal
    hashPolicies[].header                            HashPolicy.header
    hashPolicies[].header.name
    hashPolicies[].cookie                            HashPolicy.cookie
    hashPolicies[].cookie.name
    hashPolicies[].cookie.ttl
    hashPolicies[].cookie.path
    hashPolicies[].connection                        HashPolicy.connection_properties
    hashPolicies[].connection.sourceIP
    hashPolicies[].queryParameter                    HashPolicy.query_parameter
    hashPolicies[].queryParameter.name
    hashPolicies[].filterState                       HashPolicy.filter_state
    hashPolicies[].filterState.key
    localityAwareness                                priorities and localities of the endpoints
    localityAwareness.disabled                       all zones alike
    localityAwareness.localZone
    localityAwareness.localZone.affinityTags         LocalityLbEndpoints.locality.sub_zone
    localityAwareness.localZone.affinityTags[].key
    localityAwareness.localZone.affinityTags[].weight    LocalityLbEndpoints.load_balancing_weight
    localityAwareness.crossZone
    localityAwareness.crossZone.failover             LocalityLbEndpoints.priority
    localityAwareness.crossZone.failover[].from
    localityAwareness.crossZone.failover[].from.zones
    localityAwareness.crossZone.failover[].to
    localityAwareness.crossZone.failover[].to.type
    localityAwareness.crossZone.failover[].to.zones
    localityAwareness.crossZone.failoverThreshold
    localityAwareness.crossZone.failoverThreshold.percentage
                                                     ClusterLoadAssignment.policy.overprovisioning_factor

Without a policy endpoints of the own zone go before all others.
"""

from __future__ import annotations

from cp.policies import Policy
from cp.policies.mesh_load_balancing_strategy.schema import Conf, Spec
from cp.policies.mesh_load_balancing_strategy.validation import TARGETS, deprecations, validate
from cp.resources.kinds import Kind, PolicyShape


class MeshLoadBalancingStrategy(Policy[Conf]):
    kind = Kind(
        name="MeshLoadBalancingStrategy",
        short="mlbs",
        plural="meshloadbalancingstrategies",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        policy=PolicyShape(to=True),
    )
    order = 400
    conf = Conf
    targets = TARGETS
    route_fields = TARGETS.http_route
    tcp_route_fields = TARGETS.tcp_route


POLICY = MeshLoadBalancingStrategy()

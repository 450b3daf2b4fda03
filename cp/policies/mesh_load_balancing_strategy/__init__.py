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

Without a policy endpoints of the own zone go before all others. As soon as `localZone` or `crossZone` is written, zones
that no rule of `failover` lets requests into get none, and `disabled` has no meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cp.policies import Policy
from cp.policies.mesh_load_balancing_strategy.balancer import write_balancer
from cp.policies.mesh_load_balancing_strategy.hashing import hash_policies, write_of_connections, write_of_requests
from cp.policies.mesh_load_balancing_strategy.locality import arranged, is_weighed, overprovisioning
from cp.policies.mesh_load_balancing_strategy.schema import Conf, LocalityAwareness, Spec
from cp.policies.mesh_load_balancing_strategy.validation import DEFAULT_RING, TARGETS, deprecations, validate
from cp.resources.kinds import Kind, PolicyShape
from cp.rules.matching import in_force

if TYPE_CHECKING:
    from cp.resources.caller import Caller
    from cp.resources.world import Table
    from generators.drafts import ClusterDraft, EndpointsDraft, ListenerDraft, RouteDraft
    from generators.proxy import Endpoints


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
    is_hidden_by_routes = True
    is_for_grpc_clients = True

    def arrange(self, conf: Conf | None, endpoints: Endpoints, caller: Caller) -> Endpoints:
        return arranged((conf or Conf()).locality_awareness or LocalityAwareness(), endpoints, caller)

    def caller_tags(self, table: Table) -> frozenset[str]:
        confs = (conf for policy in in_force(table) for _, _, conf in policy.spec.confs())
        zones = (conf.locality_awareness.local_zone for conf in confs if conf and conf.locality_awareness)
        return frozenset(tag.key for zone in zones if zone for tag in zone.affinity_tags or ())

    def cluster(self, conf: Conf, draft: ClusterDraft) -> None:
        if conf.load_balancer is not None:
            write_balancer(draft.cluster, conf.load_balancer, DEFAULT_RING)
        if is_weighed(conf.locality_awareness) and not draft.is_external:
            draft.cluster.common_lb_config.locality_weighted_lb_config.SetInParent()

    def endpoints(self, conf: Conf, draft: EndpointsDraft) -> None:
        cross_zone = conf.locality_awareness.cross_zone if conf.locality_awareness else None
        if cross_zone is not None:
            draft.assignment.policy.overprovisioning_factor.value = overprovisioning(cross_zone)

    def listener(self, conf: Conf, draft: ListenerDraft) -> None:
        if draft.tcp is not None:
            write_of_connections(draft.tcp, hash_policies(conf))

    def route(self, conf: Conf, draft: RouteDraft) -> None:
        if draft.action is not None:
            write_of_requests(draft.action, hash_policies(conf))


POLICY = MeshLoadBalancingStrategy()

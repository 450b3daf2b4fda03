"""The algorithm by which a cluster chooses an endpoint, as Envoy has it."""

from __future__ import annotations

from typing import Final

from envoy.config.cluster.v3.cluster_pb2 import Cluster

from cp.policies.mesh_load_balancing_strategy.schema import LeastRequest, LoadBalancer, Maglev, RingHash
from generators.envoy.edit import set_number

_LB_POLICIES: Final = {
    "RoundRobin": Cluster.ROUND_ROBIN,
    "Random": Cluster.RANDOM,
    "LeastRequest": Cluster.LEAST_REQUEST,
    "RingHash": Cluster.RING_HASH,
    "Maglev": Cluster.MAGLEV,
}
_HASH_FUNCTIONS: Final = {
    "XXHash": Cluster.RingHashLbConfig.XX_HASH,
    "MurmurHash2": Cluster.RingHashLbConfig.MURMUR_HASH_2,
}
_ACTIVE_REQUEST_BIAS: Final = "koguma.least_request.active_request_bias"
"""Envoy wants the name of a runtime setting beside the value; nobody sets it."""


def write_balancer(cluster: Cluster, balancer: LoadBalancer, default_ring: int) -> None:
    if balancer.type is None:
        return
    cluster.lb_policy = _LB_POLICIES[balancer.type]
    if balancer.type == "LeastRequest" and balancer.least_request is not None:
        _write_least_request(cluster.least_request_lb_config, balancer.least_request)
    elif balancer.type == "RingHash" and balancer.ring_hash is not None:
        _write_ring_hash(cluster.ring_hash_lb_config, balancer.ring_hash, default_ring)
    elif balancer.type == "Maglev" and balancer.maglev is not None:
        _write_maglev(cluster.maglev_lb_config, balancer.maglev)


def _write_least_request(message: Cluster.LeastRequestLbConfig, conf: LeastRequest) -> None:
    set_number(message.choice_count, conf.choice_count)
    if conf.active_request_bias is not None:
        message.active_request_bias.default_value = float(conf.active_request_bias)
        message.active_request_bias.runtime_key = _ACTIVE_REQUEST_BIAS


def _write_ring_hash(message: Cluster.RingHashLbConfig, conf: RingHash, default_ring: int) -> None:
    """The two sizes can come from two policies: then the ring is no larger than the one allows, whatever the other."""
    if conf.hash_function is not None:
        message.hash_function = _HASH_FUNCTIONS[conf.hash_function]
    set_number(message.maximum_ring_size, conf.max_ring_size)
    if conf.min_ring_size is not None or conf.max_ring_size is not None:
        least = default_ring if conf.min_ring_size is None else conf.min_ring_size
        message.minimum_ring_size.value = least if conf.max_ring_size is None else min(least, conf.max_ring_size)


def _write_maglev(message: Cluster.MaglevLbConfig, conf: Maglev) -> None:
    set_number(message.table_size, conf.table_size)

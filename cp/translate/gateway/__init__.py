"""Builtin gateways: what is served at each port, worked out hostname by hostname (record 0066).

What is served at a port is put together from what is built for its parts: a route table from its hostnames, a listener
from its chains. So an edit of one route costs one hostname, and one table on the wire.

From World to World a hostname is kept as it is if the same routes decide over it, and nothing has changed on which it
depends, policies among it; and so is what is put together from the same parts (record 0071).
"""

from cp.translate.gateway.results import NO_GATEWAY as NO_GATEWAY
from cp.translate.gateway.results import ChainResult as ChainResult
from cp.translate.gateway.results import ClusterRules as ClusterRules
from cp.translate.gateway.results import Earlier as Earlier
from cp.translate.gateway.results import GatewayResult as GatewayResult
from cp.translate.gateway.results import HostKey as HostKey
from cp.translate.gateway.results import HostResult as HostResult
from cp.translate.gateway.results import chain_key as chain_key
from cp.translate.gateway.stage import GatewayStage as GatewayStage

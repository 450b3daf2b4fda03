"""Which policies hold where: matching selects them, merging folds their confs, and a rule says what they come to.

The room knows resources and no Envoy, and does no I/O.
"""

from cp.rules.build import PolicyRules as PolicyRules
from cp.rules.build import build as build
from cp.rules.combined import CombinedConf as CombinedConf
from cp.rules.destinations import at_gateway as at_gateway
from cp.rules.destinations import effective as effective
from cp.rules.destinations import gateway_levels as gateway_levels
from cp.rules.destinations import levels as levels
from cp.rules.destinations import of_service as of_service
from cp.rules.inbound import InboundRule as InboundRule
from cp.rules.inbound import InboundRules as InboundRules
from cp.rules.inbound import Match as Match
from cp.rules.inbound import includes as includes
from cp.rules.inbound import meets as meets
from cp.rules.items import PolicyItem as PolicyItem
from cp.rules.matches import matches_hash as matches_hash
from cp.rules.outbound import ResourceRule as ResourceRule
from cp.rules.outbound import ToRules as ToRules
from cp.rules.partition import TagCondition as TagCondition
from cp.rules.routes import RouteRule as RouteRule
from cp.rules.routes import routes as routes
from cp.rules.routes import routes_of as routes_of
from cp.rules.specificity import by_specificity as by_specificity
from cp.rules.specificity import specificity as specificity
from cp.rules.subsets import MATCHES_TAG as MATCHES_TAG
from cp.rules.subsets import SubsetRule as SubsetRule
from cp.rules.subsets import SubsetRules as SubsetRules
from cp.rules.subsets import fits as fits

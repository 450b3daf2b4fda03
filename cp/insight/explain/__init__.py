"""Why a call of a proxy goes where it goes, and what holds on a proxy: every value, and who set it."""

from cp.insight.explain.explanation import explain as explain
from cp.insight.explain.gateways import proxy_of_gateway as proxy_of_gateway
from cp.insight.explain.model import Explanation as Explanation
from cp.insight.explain.proxy_values import ProxyValues as ProxyValues
from cp.insight.explain.query import AmbiguousCall as AmbiguousCall
from cp.insight.explain.query import CallQuery as CallQuery
from cp.insight.explain.query import parse_call as parse_call

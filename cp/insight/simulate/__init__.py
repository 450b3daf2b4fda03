"""What Envoy would do with a call, from the very bytes that it is served, without an Envoy.

As Envoy 1.39 and 1.40 do it. Earlier ones differ in three corners: they compare the values of a header that is sent
twice as one text, read expressions as UTF-8, and let `/..;x` be a name.
"""

from cp.insight.simulate.conditions import RouteCondition as RouteCondition
from cp.insight.simulate.conditions import UnsimulatedFeature as UnsimulatedFeature
from cp.insight.simulate.outcome import ForwardedCall as ForwardedCall
from cp.insight.simulate.outcome import Outcome as Outcome
from cp.insight.simulate.outcome import RetryRule as RetryRule
from cp.insight.simulate.outcome import RowTrial as RowTrial
from cp.insight.simulate.outcome import TrafficShare as TrafficShare
from cp.insight.simulate.request import Call as Call
from cp.insight.simulate.served import NoListener as NoListener
from cp.insight.simulate.simulation import simulate as simulate

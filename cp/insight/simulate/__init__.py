"""The outcome of a call, simulated without an Envoy on the bytes that the Envoy is served.

The simulation follows Envoy 1.39 and 1.40. Earlier versions differ in three corner cases: they compare the values of a
header that is sent twice as one text, read regular expressions as UTF-8, and take `/..;x` for a name.
Where the outcome is not known for sure, it raises `UnsimulatedFeature` instead of guessing.
`tests/simulate` compares it with a real Envoy.
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
from cp.insight.simulate.simulation import retries_by_row as retries_by_row
from cp.insight.simulate.simulation import simulate as simulate

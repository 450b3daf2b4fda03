"""What Envoy would do with a call, from the very bytes that it is served, without an Envoy.

As Envoy 1.39 and 1.40 do it. Earlier ones differ in three corners: they compare the values of a header that is sent
twice as one text, read expressions as UTF-8, and let `/..;x` be a name.
"""

from cp.insight.simulate.conditions import Condition as Condition
from cp.insight.simulate.conditions import Unsimulated as Unsimulated
from cp.insight.simulate.outcome import Forward as Forward
from cp.insight.simulate.outcome import Outcome as Outcome
from cp.insight.simulate.outcome import Reply as Reply
from cp.insight.simulate.outcome import Retry as Retry
from cp.insight.simulate.outcome import Share as Share
from cp.insight.simulate.outcome import Tried as Tried
from cp.insight.simulate.request import Call as Call
from cp.insight.simulate.served import NotListening as NotListening
from cp.insight.simulate.simulation import simulate as simulate

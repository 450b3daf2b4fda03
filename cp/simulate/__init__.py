"""What Envoy would do with a call, from the very bytes that it is served, without an Envoy.

As Envoy 1.39 and 1.40 do it. Earlier ones differ in three corners: they compare the values of a header that is sent
twice as one text, read expressions as UTF-8, and let `/..;x` be a name.
"""

from cp.simulate.conditions import Condition as Condition
from cp.simulate.conditions import Unsimulated as Unsimulated
from cp.simulate.outcome import Forward as Forward
from cp.simulate.outcome import Outcome as Outcome
from cp.simulate.outcome import Reply as Reply
from cp.simulate.outcome import Retry as Retry
from cp.simulate.outcome import Share as Share
from cp.simulate.outcome import Tried as Tried
from cp.simulate.request import Call as Call
from cp.simulate.served import NotListening as NotListening
from cp.simulate.simulation import simulate as simulate

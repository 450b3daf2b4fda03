"""Which policies select a dataplane, and which of its inbounds or gateway listeners."""

from cp.matching.matcher import ByKind as ByKind
from cp.matching.matcher import match as match
from cp.matching.matcher import matcher as matcher
from cp.matching.order import precedence as precedence
from cp.matching.order import target_of as target_of
from cp.matching.order import top_of as top_of
from cp.matching.selection import Matched as Matched
from cp.matching.selection import in_force as in_force
from cp.matching.selection import is_shadow as is_shadow
from cp.matching.selection import routes_at_top as routes_at_top

"""Which policies select a dataplane, and which of its inbounds or gateway listeners."""

from cp.rules.matching.matcher import ByKind as ByKind
from cp.rules.matching.matcher import PolicyMatcher as PolicyMatcher
from cp.rules.matching.matcher import match as match
from cp.rules.matching.order import precedence as precedence
from cp.rules.matching.order import target_of as target_of
from cp.rules.matching.order import top_of as top_of
from cp.rules.matching.selection import MatchedPolicy as MatchedPolicy
from cp.rules.matching.selection import in_force as in_force
from cp.rules.matching.selection import is_shadow as is_shadow
from cp.rules.matching.selection import routes_at_top as routes_at_top

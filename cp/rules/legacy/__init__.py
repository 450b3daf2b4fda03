"""Policies of Kuma's first versions: which of them hold, and what they come to (docs/concepts/legacy-policies.md).

They have sources and destinations in place of a targetRef, and are a second way into the same confs: what one of them
says of a service, an inbound or a proxy is written as the conf of a policy with a targetRef, and lies under what such
policies say (record 0072).
"""

from cp.rules.legacy.matching import LegacyMatch as LegacyMatch
from cp.rules.legacy.matching import legacy_matches as legacy_matches
from cp.rules.legacy.matching import side_of as side_of
from cp.rules.legacy.policy_confs import legacy_confs as legacy_confs
from cp.rules.legacy.policy_confs import legacy_failures as legacy_failures
from cp.rules.legacy.precedence import rank_at as rank_at
from cp.rules.legacy.rules import NO_LEGACY as NO_LEGACY
from cp.rules.legacy.rules import LegacyClient as LegacyClient
from cp.rules.legacy.rules import LegacyDecisions as LegacyDecisions
from cp.rules.legacy.rules import LegacyOfCalls as LegacyOfCalls
from cp.rules.legacy.rules import LegacyRules as LegacyRules
from cp.rules.legacy.rules import failures_of_decisions as failures_of_decisions
from cp.rules.legacy.rules import legacy_rules as legacy_rules
from cp.rules.legacy.rules import scope_of_legacy as scope_of_legacy
from cp.rules.legacy.rules import tells_clients_apart as tells_clients_apart
from cp.rules.legacy.selectors import age as age

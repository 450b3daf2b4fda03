"""The rules that hold for one proxy, and the effects of one policy on its proxies."""

from cp.insight.inspect.affected import AffectedProxy as AffectedProxy
from cp.insight.inspect.affected import SelectedProxy as SelectedProxy
from cp.insight.inspect.affected import affected_proxies as affected_proxies
from cp.insight.inspect.affected import selected_proxies as selected_proxies
from cp.insight.inspect.affected import selection_counts as selection_counts
from cp.insight.inspect.affected import selects_proxies as selects_proxies
from cp.insight.inspect.answers import inspect_policies as inspect_policies
from cp.insight.inspect.answers import inspect_rules as inspect_rules
from cp.insight.inspect.scopes import confs_by_scope as confs_by_scope

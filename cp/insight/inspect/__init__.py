"""What policies come to, for those who ask: for a proxy, or for one policy."""

from cp.insight.inspect.affected import AffectedProxy as AffectedProxy
from cp.insight.inspect.affected import SelectedProxy as SelectedProxy
from cp.insight.inspect.affected import affected as affected
from cp.insight.inspect.affected import selected as selected
from cp.insight.inspect.answers import inspect_policies as inspect_policies
from cp.insight.inspect.answers import inspect_rules as inspect_rules
from cp.insight.inspect.places import ProxyPlace as ProxyPlace
from cp.insight.inspect.places import standing as standing

"""What policies come to, for those who ask: for a proxy, or for one policy."""

from cp.insight.inspect.affected import Affected as Affected
from cp.insight.inspect.affected import Selected as Selected
from cp.insight.inspect.affected import affected as affected
from cp.insight.inspect.affected import selected as selected
from cp.insight.inspect.answers import inspect_policies as inspect_policies
from cp.insight.inspect.answers import inspect_rules as inspect_rules
from cp.insight.inspect.places import Place as Place
from cp.insight.inspect.places import standing as standing

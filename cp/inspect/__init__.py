"""What policies come to, for those who ask: for a proxy, or for one policy."""

from cp.inspect.affected import Affected as Affected
from cp.inspect.affected import Selected as Selected
from cp.inspect.affected import affected as affected
from cp.inspect.affected import selected as selected
from cp.inspect.answers import inspect_policies as inspect_policies
from cp.inspect.answers import inspect_rules as inspect_rules
from cp.inspect.standing import Place as Place
from cp.inspect.standing import standing as standing

"""Why a call of a proxy goes where it goes: the route, every value that holds for it, and who set each."""

from cp.explain.asked import Asked as Asked
from cp.explain.asked import Unclear as Unclear
from cp.explain.asked import asked as asked
from cp.explain.explanation import explain as explain
from cp.explain.model import Explanation as Explanation

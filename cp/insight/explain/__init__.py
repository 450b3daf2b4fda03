"""Why a call of a proxy goes where it goes: the route, every value that holds for it, and who set each."""

from cp.insight.explain.explanation import explain as explain
from cp.insight.explain.model import Explanation as Explanation
from cp.insight.explain.query import AmbiguousCall as AmbiguousCall
from cp.insight.explain.query import CallQuery as CallQuery
from cp.insight.explain.query import parse_call as parse_call

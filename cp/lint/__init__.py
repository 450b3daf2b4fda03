"""What an operator should know about a mesh before its proxies do: findings, each with what to write instead."""

from cp.lint.codes import CATALOGUE as CATALOGUE
from cp.lint.codes import NO_EFFECT as NO_EFFECT
from cp.lint.codes import NO_EFFECT_OF_ITEM as NO_EFFECT_OF_ITEM
from cp.lint.lint import in_order as in_order
from cp.lint.lint import lint as lint
from cp.lint.lint import of_mesh as of_mesh

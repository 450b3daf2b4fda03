"""What an operator should know about a mesh before its proxies do: findings, each with what to write instead."""

from cp.insight.lint.closed_meshes import closed_meshes as closed_meshes
from cp.insight.lint.codes import CATALOGUE as CATALOGUE
from cp.insight.lint.codes import NO_EFFECT as NO_EFFECT
from cp.insight.lint.codes import NO_EFFECT_OF_ITEM as NO_EFFECT_OF_ITEM
from cp.insight.lint.codes import NOTHING_SERVED as NOTHING_SERVED
from cp.insight.lint.gateways import of_gateway as of_gateway
from cp.insight.lint.lint import in_order as in_order
from cp.insight.lint.lint import lint as lint
from cp.insight.lint.lint import of_mesh as of_mesh

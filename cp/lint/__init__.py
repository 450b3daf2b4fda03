"""What an operator should know about a mesh before its proxies do: findings, each with what to write instead."""

from cp.lint.codes import CATALOGUE as CATALOGUE
from cp.lint.codes import NO_EFFECT as NO_EFFECT

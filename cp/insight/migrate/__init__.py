"""How a mesh is moved from legacy policies to policies with a targetRef, with proof of what that changes."""

from cp.insight.comparison import ChangedResource as ChangedResource
from cp.insight.comparison import Decode as Decode
from cp.insight.comparison import changed_fields as changed_fields
from cp.insight.fields import ABSENT as ABSENT
from cp.insight.fields import ChangedField as ChangedField
from cp.insight.migrate.migration import Difference as Difference
from cp.insight.migrate.migration import Migration as Migration
from cp.insight.migrate.migration import migration as migration
from cp.insight.migrate.newer_version import GoneUse as GoneUse
from cp.insight.migrate.newer_version import gone_uses as gone_uses
from cp.insight.migrate.newer_version import rewrites as rewrites
from cp.insight.migrate.translation import translations as translations

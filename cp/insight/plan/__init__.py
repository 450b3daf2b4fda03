"""What a change would do, before it is made: to documents, to proxies, to connections, and to the findings of lint."""

from cp.insight.plan.changed_proxies import ChangedProxy as ChangedProxy
from cp.insight.plan.changed_proxies import ProxyChanges as ProxyChanges
from cp.insight.plan.changed_proxies import UpcomingResource as UpcomingResource
from cp.insight.plan.changed_proxies import is_overwritten as is_overwritten
from cp.insight.plan.changed_proxies import proxy_changes as proxy_changes
from cp.insight.plan.data import failure_sentences as failure_sentences
from cp.insight.plan.data import plan_data as plan_data
from cp.insight.plan.model import MeshPlan as MeshPlan
from cp.insight.plan.model import Plan as Plan
from cp.insight.plan.plan import PlanScope as PlanScope
from cp.insight.plan.plan import finding_changes as finding_changes
from cp.insight.plan.plan import mesh_plans as mesh_plans
from cp.insight.plan.plan import meshes_of as meshes_of
from cp.insight.plan.plan import planned_documents as planned_documents

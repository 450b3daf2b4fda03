"""What each proxy was sent and how it answered, with the policies behind what it NACKed."""

from cp.serving.delivery.causes import CauseFinder as CauseFinder
from cp.serving.delivery.causes import PolicyPart as PolicyPart
from cp.serving.delivery.causes import ResourceCauses as ResourceCauses
from cp.serving.delivery.delivery import Delivery as Delivery
from cp.serving.delivery.delivery import Presence as Presence
from cp.serving.delivery.delivery import ProxyState as ProxyState
from cp.serving.delivery.delivery import StandingNack as StandingNack
from cp.serving.delivery.delivery import delivery as delivery
from cp.serving.delivery.delivery import nacked_since as nacked_since
from cp.serving.delivery.delivery import presence as presence
from cp.serving.delivery.nacks import CODE as CODE
from cp.serving.delivery.nacks import NackGroup as NackGroup
from cp.serving.delivery.nacks import NackReport as NackReport
from cp.serving.delivery.nacks import finding as finding
from cp.serving.delivery.nacks import grouped as grouped
from cp.serving.delivery.progress import ChangeProgress as ChangeProgress
from cp.serving.delivery.progress import ChangeStanding as ChangeStanding
from cp.serving.delivery.progress import stand as stand

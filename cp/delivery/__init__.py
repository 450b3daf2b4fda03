"""What each proxy was told and what it said to it, with the policies that stand behind what it refuses."""

from cp.delivery.delivery import Delivery as Delivery
from cp.delivery.delivery import Presence as Presence
from cp.delivery.delivery import Refusal as Refusal
from cp.delivery.delivery import State as State
from cp.delivery.delivery import delivery as delivery
from cp.delivery.delivery import presence as presence
from cp.delivery.delivery import troubled_since as troubled_since
from cp.delivery.progress import Progress as Progress
from cp.delivery.progress import Stand as Stand
from cp.delivery.progress import stand as stand
from cp.delivery.refusals import CODE as CODE
from cp.delivery.refusals import Complaint as Complaint
from cp.delivery.refusals import Grouped as Grouped
from cp.delivery.refusals import finding as finding
from cp.delivery.refusals import grouped as grouped
from cp.delivery.sources import Behind as Behind
from cp.delivery.sources import Place as Place
from cp.delivery.sources import Sources as Sources

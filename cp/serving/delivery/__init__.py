"""What each proxy was told and what it said to it, with the policies that stand behind what it refuses."""

from cp.serving.delivery.causes import Behind as Behind
from cp.serving.delivery.causes import Place as Place
from cp.serving.delivery.causes import Sources as Sources
from cp.serving.delivery.delivery import Delivery as Delivery
from cp.serving.delivery.delivery import Presence as Presence
from cp.serving.delivery.delivery import Refusal as Refusal
from cp.serving.delivery.delivery import State as State
from cp.serving.delivery.delivery import delivery as delivery
from cp.serving.delivery.delivery import presence as presence
from cp.serving.delivery.delivery import troubled_since as troubled_since
from cp.serving.delivery.nacks import CODE as CODE
from cp.serving.delivery.nacks import Complaint as Complaint
from cp.serving.delivery.nacks import Grouped as Grouped
from cp.serving.delivery.nacks import finding as finding
from cp.serving.delivery.nacks import grouped as grouped
from cp.serving.delivery.progress import Progress as Progress
from cp.serving.delivery.progress import Stand as Stand
from cp.serving.delivery.progress import stand as stand

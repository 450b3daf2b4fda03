"""Legacy policies where they are for something: which of them hold there, which of their values act, and why not."""

from cp.insight.legacy.gateway_routes import gateway_route_places as gateway_route_places
from cp.insight.legacy.names import VIRTUAL_OUTBOUND as VIRTUAL_OUTBOUND
from cp.insight.legacy.names import NamedPlaces as NamedPlaces
from cp.insight.legacy.names import knows_names as knows_names
from cp.insight.legacy.places import MTLS_OFF as MTLS_OFF
from cp.insight.legacy.places import NOT_CALLED as NOT_CALLED
from cp.insight.legacy.places import OUTRANKED as OUTRANKED
from cp.insight.legacy.places import OVERRIDDEN as OVERRIDDEN
from cp.insight.legacy.places import SILENT as SILENT
from cp.insight.legacy.places import UNFITTING as UNFITTING
from cp.insight.legacy.places import UNREACHED as UNREACHED
from cp.insight.legacy.places import LegacyPlace as LegacyPlace
from cp.insight.legacy.places import LegacyPlaces as LegacyPlaces
from cp.insight.legacy.values import LegacyValue as LegacyValue
from cp.insight.legacy.values import whole as whole
from cp.insight.legacy.values import written_path as written_path
from cp.insight.legacy.values import written_values as written_values

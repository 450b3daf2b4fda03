"""An API and a command line, as their own tests have them."""

from tests.api.conftest import api as api
from tests.api.conftest import start as start
from tests.cli.conftest import offline as offline

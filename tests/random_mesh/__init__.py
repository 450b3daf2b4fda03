"""Small random meshes, valid by construction, for tests that compare two ways of computing the same.

    @for_meshes()
    def test_something(mesh: Mesh) -> None:
        world = mesh.world()

There are few names, so that documents meet. Display names are shared on purpose: by services of two namespaces, of two
zones and of several kinds. `words` has the names, `services`, `proxies`, `gateways`, `routes` and `policies` make
documents of their kinds, `mesh` puts them together, and `judging` has tests ask them.
"""

from tests.random_mesh.documents import CALLS as CALLS
from tests.random_mesh.documents import DESTINATIONS as DESTINATIONS
from tests.random_mesh.documents import EDGE as EDGE
from tests.random_mesh.documents import EVERY as EVERY
from tests.random_mesh.documents import HARMLESS as HARMLESS
from tests.random_mesh.documents import IDENTIFIED as IDENTIFIED
from tests.random_mesh.documents import LEGACY as LEGACY
from tests.random_mesh.documents import LEGACY_EDGE as LEGACY_EDGE
from tests.random_mesh.documents import NAMED as NAMED
from tests.random_mesh.documents import PATCHED as PATCHED
from tests.random_mesh.documents import REACHED as REACHED
from tests.random_mesh.documents import random_document as random_document
from tests.random_mesh.judging import IN_SHARES as IN_SHARES
from tests.random_mesh.judging import for_meshes as for_meshes
from tests.random_mesh.judging import seeds as seeds
from tests.random_mesh.judging import share as share
from tests.random_mesh.mesh import Mesh as Mesh
from tests.random_mesh.mesh import dataplanes as dataplanes
from tests.random_mesh.mesh import mesh_of as mesh_of
from tests.random_mesh.words import MESH as MESH
from tests.random_mesh.words import PATHS as PATHS
from tests.random_mesh.words import ROUTES as ROUTES
from tests.random_mesh.words import SERVICES as SERVICES
from tests.random_mesh.words import document as document

"""Small random meshes, valid by construction, for tests that compare two ways of computing the same.

    @given(mesh=meshes())
    def test_something(mesh: Mesh) -> None:
        world = mesh.world()

There are few names, so that documents meet. Names of display are shared on purpose: by services of two namespaces, of two
zones and of several kinds. `words` has the names, `services`, `proxies`, `routes` and `policies` make documents of their
kinds, and `mesh` puts them together.
"""

from tests.random_mesh.documents import DESTINATIONS, EVERY, HARMLESS, random_document
from tests.random_mesh.mesh import Mesh, dataplanes, mesh_of, meshes
from tests.random_mesh.words import MESH, PATHS, ROUTES, SERVICES, document

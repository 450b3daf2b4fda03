"""A second implementation of what the documents say about one call, to hold the first one against.

It reads the plain data of a mesh, one proxy and one call, and says where the call goes and what holds for it. It knows
nothing of how `cp` does that: no module here imports its matching, merging, rules, view or policies. `envoy` reads the
same from the bytes that the proxy is served. Where both differ, one of them does not do what is written.

It covers the calls of sidecars and delegated gateways by their own outbounds, and MeshHTTPRoute, MeshTCPRoute,
MeshTimeout and MeshRetry; and who may call an inbound by MeshTrafficPermission. Slow and simple is fine here: nothing
is remembered, everything is asked anew.

    reading      documents in one form, with the labels that say whose they are
    matching     which policies select a proxy, which service a target means, and which item is stronger
    merging      one conf from several, and one value from several levels
    routes       the rows of a route table, and what stands behind a reference to a backend
    values       timeouts and retries
    request      the answer for one call
    permissions  who may call an inbound
    envoy        the answer that is served
    door         who is let in by what is served
    clients      how long an inbound waits for one client, and how long it does by what is served

Sources: documents 000 to 004 as record 0024 lists them, `docs/differences-from-kuma.md`,
`docs/concepts/matching-and-merging.md`, and Kuma 2.14 where those are silent.
"""

from tests.oracle.destinations import outbound as outbound
from tests.oracle.matching import selects as selects
from tests.oracle.reading import Documents as Documents
from tests.oracle.reading import Resource as Resource
from tests.oracle.reading import read as read
from tests.oracle.request import is_judged as is_judged
from tests.oracle.request import outbounds as outbounds

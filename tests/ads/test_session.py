"""What a state-of-the-world stream says, and when it keeps silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cp.ads.session.messages import Response, SotwRequest
from cp.ads.session.nacks import culprits
from cp.ads.session.pending import MOST_PENDING
from cp.ads.session.sotw import SotwSession
from cp.ads.session.wire import encoded
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, TYPES, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from tests.ads.content import cluster, endpoints, listener, routes, secret, snapshot

WEB = (cluster("web"), endpoints("web"), listener("out", "table"), routes("table", "web"))
NAMED = {ENDPOINTS: frozenset({"web"}), ROUTES: frozenset({"table"})}


def names(*values: str) -> frozenset[str]:
    return frozenset(values)


def ack(response: Response, wanted_names: frozenset[str] | None = None) -> SotwRequest:
    wanted_names = NAMED.get(response.type_url, frozenset()) if wanted_names is None else wanted_names
    return SotwRequest(response.type_url, wanted_names, response.nonce, response.version)


def nack(response: Response, text: str, in_force: str = "") -> SotwRequest:
    wanted_names = NAMED.get(response.type_url, frozenset())
    return SotwRequest(response.type_url, wanted_names, response.nonce, in_force, error=text)


def contents(responses: list[Response]) -> list[tuple[str, list[str]]]:
    """The type of each response, and the names in it."""
    return [(r.type_url, sorted(packed.name for packed in r.resources)) for r in responses]


def accept(session: SotwSession, responses: list[Response]) -> list[Response]:
    """Accept these and all that follows; answers with everything that was sent."""
    sent = list(responses)
    for response in sent:
        sent += session.receive(ack(response))
    return sent


def begun(*resources: PackedResource) -> SotwSession:
    """A session whose client has these and confirmed them."""
    session = SotwSession()
    session.publish(snapshot(*resources))
    for type_url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES):
        accept(session, session.receive(SotwRequest(type_url, NAMED.get(type_url, frozenset()))))
    return session


# --- asking ---


def test_nothing_is_sent_before_there_is_a_snapshot() -> None:
    session = SotwSession()

    assert not session.receive(SotwRequest(CLUSTER))
    assert contents(session.publish(snapshot(*WEB))) == [(CLUSTER, ["web"])]


@pytest.mark.parametrize("wanted_names", [names(), names("*")], ids=["no names", "a star"])
def test_asking_for_all_clusters_gets_all(wanted_names: frozenset[str]) -> None:
    session = SotwSession()
    session.publish(snapshot(cluster("a"), cluster("b")))

    assert contents(session.receive(SotwRequest(CLUSTER, wanted_names))) == [(CLUSTER, ["a", "b"])]


def test_there_being_no_clusters_is_an_answer() -> None:
    session = SotwSession()
    session.publish(snapshot())

    (sent,) = session.receive(SotwRequest(CLUSTER))

    assert not list(sent.resources)


def test_endpoints_are_sent_for_the_names_asked_and_no_others() -> None:
    session = SotwSession()
    session.publish(snapshot(endpoints("a"), endpoints("b")))

    assert contents(session.receive(SotwRequest(ENDPOINTS, names("a")))) == [(ENDPOINTS, ["a"])]
    assert not session.receive(SotwRequest(ENDPOINTS, names("a")))


def test_a_further_name_is_answered_alone() -> None:
    session = SotwSession()
    session.publish(snapshot(endpoints("a"), endpoints("b")))
    (first,) = session.receive(SotwRequest(ENDPOINTS, names("a")))

    assert contents(session.receive(ack(first, names("a", "b")))) == [(ENDPOINTS, ["b"])]


@pytest.mark.parametrize("type_url", [ENDPOINTS, ROUTES, SECRET])
def test_asking_for_no_name_of_a_named_type_gets_nothing(type_url: str) -> None:
    session = SotwSession()
    session.publish(snapshot(endpoints("a"), routes("a"), secret("a")))

    assert not session.receive(SotwRequest(type_url))


def test_a_name_that_is_not_there_is_answered_once_it_is() -> None:
    session = SotwSession()
    session.publish(snapshot())

    assert not session.receive(SotwRequest(ROUTES, names("table")))
    assert contents(session.publish(snapshot(routes("table")))) == [(ROUTES, ["table"])]


def test_a_name_dropped_and_asked_for_again_is_sent_again() -> None:
    session = SotwSession()
    session.publish(snapshot(endpoints("a")))
    (first,) = session.receive(SotwRequest(ENDPOINTS, names("a")))

    assert not session.receive(ack(first, names()))
    assert contents(session.receive(ack(first, names("a")))) == [(ENDPOINTS, ["a"])]


def test_a_name_no_longer_asked_for_is_not_kept_up_to_date() -> None:
    session = SotwSession()
    session.publish(snapshot(endpoints("a")))
    (first,) = session.receive(SotwRequest(ENDPOINTS, names("a")))
    session.receive(ack(first, names()))

    assert not session.publish(snapshot(endpoints("a", revision=1)))


def test_version_of_an_earlier_stream_counts_for_the_first_request() -> None:
    """A client that wants a name again has dropped it, though the version that it names is still the same."""
    session = SotwSession()
    session.publish(snapshot(endpoints("a")))
    version = snapshot(endpoints("a")).version(ENDPOINTS)
    assert not session.receive(SotwRequest(ENDPOINTS, names("a"), version=version))
    session.receive(SotwRequest(ENDPOINTS, version=version))

    assert contents(session.receive(SotwRequest(ENDPOINTS, names("a"), version=version))) == [(ENDPOINTS, ["a"])]


def returned_while_draining(newer: Snapshot, *, keeps_unknown: bool = True) -> tuple[SotwSession, list[Response]]:
    """What a client is sent that had `WEB` on an earlier stream, and another cluster for draining listeners."""
    earlier = SotwSession()
    earlier.publish(Snapshot(SnapshotPart(WEB), draining=(SnapshotPart([cluster("old"), endpoints("old")]),)))
    had = [
        response
        for type_url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES)
        for response in accept(earlier, earlier.receive(SotwRequest(type_url, NAMED.get(type_url, frozenset()))))
    ]
    assert (CLUSTER, ["old", "web"]) in contents(had)
    session = SotwSession(keeps_unknown=keeps_unknown)
    session.publish(newer)
    requests = (SotwRequest(r.type_url, NAMED.get(r.type_url, frozenset()), "", r.version) for r in had)
    return session, [response for request in requests for response in session.receive(request)]


def test_clusters_for_draining_listeners_stay_on_another_process() -> None:
    newer = snapshot(*WEB)
    session, sent = returned_while_draining(newer)
    assert (contents(sent), session.is_at(newer), session.awaited_answer) == ([], True, None)
    assert contents(session.publish(snapshot(*WEB))) == []

    assert contents(accept(session, session.remove_unknown())) == [(CLUSTER, ["web"])]
    assert session.is_at(newer)
    assert session.remove_unknown() == []


@pytest.mark.parametrize("keeps_unknown", [True, False])
def test_kept_clusters_go_with_the_next_change(*, keeps_unknown: bool) -> None:
    newer = snapshot(*WEB, *([cluster("b")] if keeps_unknown else []))
    session, sent = returned_while_draining(newer, keeps_unknown=keeps_unknown)

    assert contents(accept(session, sent)) == [(CLUSTER, sorted(newer.names(CLUSTER))), (ENDPOINTS, ["web"])]
    assert session.is_at(newer)
    assert session.remove_unknown() == []


def test_next_version_names_active_clusters() -> None:
    session, _ = returned_while_draining(snapshot(*WEB))
    part = SnapshotPart([*WEB, cluster("b")])
    (response, *_) = session.publish(Snapshot(part, draining=(SnapshotPart([cluster("c")]),)))

    whole, active = Snapshot(part, SnapshotPart([cluster("c")])), Snapshot(part)
    assert response.version == f"{whole.version(CLUSTER)}+{active.version(CLUSTER)}"
    assert all("+" not in (status.sent, status.acked) for status in session.statuses)


def test_version_of_an_earlier_stream_does_not_count_for_later_names() -> None:
    session = SotwSession()
    version = snapshot(endpoints("a"), endpoints("b")).version(ENDPOINTS)
    session.receive(SotwRequest(ENDPOINTS, names("a"), version=version))
    session.receive(SotwRequest(ENDPOINTS, names("a", "b"), version=version))

    assert contents(session.publish(snapshot(endpoints("a"), endpoints("b")))) == [(ENDPOINTS, ["a", "b"])]


@pytest.mark.parametrize("make", [routes, secret])
def test_repeated_request_is_answered_once(make: Callable[[str], PackedResource]) -> None:
    """Envoy repeats it for a second listener that wants the same name from another `ConfigSource`."""
    session = SotwSession()
    session.publish(snapshot(make("a"), make("b")))
    type_url = make("a").type_url
    (first,) = session.receive(SotwRequest(type_url, names("a", "b")))
    acknowledgement = ack(first, names("a", "b"))
    assert not session.receive(acknowledgement)

    (again,) = session.receive(acknowledgement)

    assert contents([again]) == [(type_url, ["a", "b"])]
    assert again.nonce != first.nonce
    assert not session.receive(acknowledgement)
    assert not session.receive(ack(again, names("a", "b")))
    assert contents(session.receive(ack(again, names("a", "b")))) == [(type_url, ["a", "b"])]


def test_repeated_request_is_answered_though_nothing_was_sent_yet() -> None:
    session = SotwSession()
    session.publish(snapshot(secret("a")))
    request = SotwRequest(SECRET, names("a"), version=snapshot(secret("a")).version(SECRET))
    assert not session.receive(request)

    assert contents(session.receive(request)) == [(SECRET, ["a"])]


@pytest.mark.parametrize("type_url", [CLUSTER, ENDPOINTS, LISTENER])
def test_repeated_ack_is_not_answered(type_url: str) -> None:
    """Endpoints are sent again with the cluster that waits for them."""
    session = begun(*WEB)
    nonce = session._channels[type_url].nonce

    assert not session.receive(SotwRequest(type_url, NAMED.get(type_url, frozenset()), nonce))


def test_repeated_nack_is_not_answered() -> None:
    session = SotwSession()
    session.publish(snapshot(routes("a"), routes("b")))
    (sent,) = session.receive(SotwRequest(ROUTES, names("a", "b")))
    refusal = SotwRequest(ROUTES, names("a", "b"), sent.nonce, error="a: bad")
    assert contents(session.receive(refusal)) == [(ROUTES, ["b"])]

    assert not session.receive(refusal)


@pytest.mark.parametrize("requested_names", [[], ["*"], ["*", "a"]])
def test_naming_one_cluster_ends_the_wildcard(requested_names: list[str]) -> None:
    session = SotwSession()
    session.publish(snapshot(cluster("a"), cluster("b")))
    (sent,) = session.receive(SotwRequest(CLUSTER, names(*requested_names)))
    for response in session.receive(ack(sent, names("a"))):
        session.receive(ack(response, names("a")))

    assert not session.publish(snapshot(cluster("a"), cluster("b", revision=1)))
    assert contents(session.publish(snapshot(cluster("a", revision=1), cluster("b")))) == [(CLUSTER, ["a"])]


@pytest.mark.parametrize("requested_names", [["*"], ["*", "a"], ["a"]])
def test_naming_nothing_after_names_ends_the_subscription(requested_names: list[str]) -> None:
    session = SotwSession()
    session.publish(snapshot(cluster("a"), cluster("b")))
    (sent,) = session.receive(SotwRequest(CLUSTER, names(*requested_names)))

    assert not session.receive(ack(sent, names()))
    assert not session.publish(snapshot(cluster("a", revision=1), cluster("b", revision=1)))


def test_explicit_wildcard_continues_the_implicit_one() -> None:
    session = begun(*WEB)
    session.receive(SotwRequest(CLUSTER, names("*"), session._channels[CLUSTER].nonce))

    assert contents(session.publish(snapshot(*WEB, cluster("b")))) == [(CLUSTER, ["b", "web"])]


def test_secrets_are_sent_for_the_names_asked() -> None:
    session = SotwSession()
    session.publish(snapshot(secret("identity"), secret("ca")))

    (sent,) = session.receive(SotwRequest(SECRET, names("ca")))

    assert contents([sent]) == [(SECRET, ["ca"])]
    assert contents(session.publish(snapshot(secret("ca", revision=1)))) == [(SECRET, ["ca"])]


def test_a_type_that_nobody_serves_is_not_answered() -> None:
    session = SotwSession()
    session.publish(snapshot(*WEB))

    assert not session.receive(SotwRequest("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", names("x")))
    assert not session.statuses


# --- answering ---


def test_an_ack_is_not_answered() -> None:
    session = SotwSession()
    session.publish(snapshot(cluster("a")))
    (sent,) = session.receive(SotwRequest(CLUSTER))

    assert not session.receive(ack(sent))
    assert session.answer == sent.version


def test_an_old_nonce_accepts_nothing() -> None:
    session = begun(*WEB)
    (first,) = session.publish(snapshot(*WEB[:3], routes("table", "web", revision=1)))
    session.receive(ack(first))
    session.publish(snapshot(*WEB[:3], routes("table", "web", revision=2)))

    session.receive(ack(first))

    assert session.answer is None
    assert not session.is_settled


def test_the_names_of_a_request_with_an_old_nonce_count() -> None:
    session = SotwSession()
    session.publish(snapshot(endpoints("a"), endpoints("b")))
    (first,) = session.receive(SotwRequest(ENDPOINTS, names("a")))
    session.receive(ack(first, names("a")))
    session.publish(snapshot(endpoints("a", revision=1), endpoints("b")))

    assert contents(session.receive(ack(first, names("a", "b")))) == [(ENDPOINTS, ["b"])]


def test_two_first_requests_without_nonce_are_both_answered() -> None:
    session = SotwSession()
    session.publish(snapshot(endpoints("a"), endpoints("b")))

    assert contents(session.receive(SotwRequest(ENDPOINTS, names("a")))) == [(ENDPOINTS, ["a"])]
    assert contents(session.receive(SotwRequest(ENDPOINTS, names("a", "b")))) == [(ENDPOINTS, ["b"])]


def test_a_first_request_with_a_nonce_of_an_earlier_server_is_answered() -> None:
    session = SotwSession()
    session.publish(snapshot(cluster("a")))

    assert contents(session.receive(SotwRequest(CLUSTER, nonce="of another server"))) == [(CLUSTER, ["a"])]


def test_no_two_responses_that_a_client_may_still_speak_of_share_a_nonce() -> None:
    session = begun(*WEB)
    there_and_back = [snapshot(*WEB[:3], routes("table", "web", revision=turn % 2)) for turn in range(1, 6)]

    sent = [response for newer in there_and_back for response in session.publish(newer)]

    assert len({response.nonce for response in sent}) == len(sent) == 5


def test_what_is_sent_again_has_a_nonce_of_its_own() -> None:
    session = SotwSession()
    session.publish(snapshot(*WEB))
    accept(session, session.receive(SotwRequest(CLUSTER)))
    (first,) = session.receive(SotwRequest(ENDPOINTS, names("web")))
    session.receive(ack(first))

    _, again = session.publish(snapshot(cluster("web", revision=1), *WEB[1:]))

    assert list(again.resources) == list(first.resources)
    assert again.nonce != first.nonce


# --- changes ---


def test_an_equal_snapshot_sends_nothing() -> None:
    assert not begun(*WEB).publish(snapshot(*WEB))


def test_a_changed_table_is_sent_alone() -> None:
    more = (listener("in", "second"), routes("second"))
    session = begun(*WEB, *more)

    assert contents(session.publish(snapshot(*WEB[:3], routes("table", "web", revision=1), *more))) == [
        (ROUTES, ["table"])
    ]


def test_a_changed_cluster_is_sent_with_all_others() -> None:
    session = begun(*WEB, cluster("b"))

    sent = session.publish(snapshot(*WEB, cluster("b", revision=1)))

    assert contents(sent) == [(CLUSTER, ["b", "web"])]


def test_a_changed_cluster_gets_its_endpoints_again_right_behind() -> None:
    session = begun(*WEB)

    sent = session.publish(snapshot(cluster("web", revision=1), *WEB[1:]))

    assert contents(sent) == [(CLUSTER, ["web"]), (ENDPOINTS, ["web"])]


def test_a_cluster_that_is_only_sent_along_does_not_get_its_endpoints_again() -> None:
    session = begun(*WEB)

    sent = session.publish(snapshot(*WEB, cluster("b"), endpoints("b")))

    assert contents(sent) == [(CLUSTER, ["b", "web"])]


def test_endpoints_taken_away_are_an_assignment_like_any_other() -> None:
    session = begun(*WEB)

    assert contents(session.publish(snapshot(WEB[0], endpoints("web", revision=1), *WEB[2:]))) == [(ENDPOINTS, ["web"])]


# --- the order of things ---


def moved() -> Snapshot:
    """The table goes to a new cluster, and the old one is gone."""
    return snapshot(cluster("new"), endpoints("new"), WEB[2], routes("table", "new"))


def test_routes_wait_until_their_clusters_are_in_force() -> None:
    session = begun(*WEB)

    (clusters,) = session.publish(moved())

    assert contents([clusters]) == [(CLUSTER, ["new", "web"])]
    assert session.awaited_answer == clusters.nonce
    assert contents(session.receive(ack(clusters))) == [(ROUTES, ["table"])]


def test_a_cluster_goes_once_no_route_in_force_uses_it() -> None:
    session = begun(*WEB)
    (clusters,) = session.publish(moved())
    (table,) = session.receive(ack(clusters))

    assert contents(session.receive(ack(table))) == [(CLUSTER, ["new"])]


def test_a_cluster_stays_while_the_routes_that_leave_it_are_refused() -> None:
    session = begun(*WEB)
    (clusters,) = session.publish(moved())
    (table,) = session.receive(ack(clusters))

    assert not session.receive(nack(table, "no good"))


def test_a_deadline_lets_the_routes_go() -> None:
    session = begun(*WEB)
    (clusters,) = session.publish(moved())

    assert not session.expire("of another response")
    assert contents(session.expire(clusters.nonce)) == [(ROUTES, ["table"])]
    assert session.awaited_answer is None


def test_an_answer_after_the_deadline_still_counts() -> None:
    session = begun(*WEB)
    (clusters,) = session.publish(moved())
    session.expire(clusters.nonce)

    session.receive(ack(clusters))

    assert session.answer == clusters.version


def test_a_change_without_new_clusters_waits_for_nothing() -> None:
    session = begun(*WEB)

    session.publish(snapshot(*WEB[:3], routes("table", "web", revision=1)))

    assert session.awaited_answer is None


def test_the_removal_of_a_cluster_holds_nothing_up() -> None:
    session = begun(*WEB, cluster("b"))

    assert contents(session.publish(snapshot(*WEB))) == [(CLUSTER, ["web"])]
    assert session.awaited_answer is None


def test_clusters_are_not_sent_again_while_one_of_them_waits_to_go() -> None:
    session = begun(*WEB, cluster("b"))

    (table,) = session.publish(snapshot(*WEB[:3], routes("table", "web", revision=1)))

    assert contents([table]) == [(ROUTES, ["table"])]
    assert contents(session.receive(ack(table))) == [(CLUSTER, ["web"])]


def test_a_stream_of_changes_does_not_hold_up_the_routes() -> None:
    """While the first change waits for its clusters others follow; its routes are sent before their clusters."""
    session = begun(*WEB)
    (clusters,) = session.publish(moved())
    later = (cluster("new", revision=1), endpoints("new"), WEB[2], routes("table", "new", revision=1))

    assert not session.publish(snapshot(*later))
    assert contents(session.receive(ack(clusters))) == [(ROUTES, ["table"]), (CLUSTER, ["new", "web"])]


def test_clusters_of_a_snapshot_that_waited_are_sent_though_the_next_one_did_not_change_them() -> None:
    session = begun(*WEB)
    (clusters,) = session.publish(moved())
    more = (cluster("new"), endpoints("new"), cluster("more"), WEB[2])
    session.publish(snapshot(*more, routes("table", "new")))
    session.publish(snapshot(*more, routes("table", "new", revision=1)))

    assert (CLUSTER, ["more", "new", "web"]) in contents(session.receive(ack(clusters)))


def test_endpoints_do_not_wait_for_the_order_of_things() -> None:
    session = begun(*WEB)
    (clusters,) = session.publish(snapshot(*WEB, cluster("b")))

    changed = snapshot(WEB[0], endpoints("web", revision=1), *WEB[2:], cluster("b"))

    assert contents(session.publish(changed)) == [(ENDPOINTS, ["web"])]
    assert session.awaited_answer == clusters.nonce


def test_endpoints_of_a_cluster_on_its_way_are_there_though_it_is_gone_from_the_newest_snapshot() -> None:
    session = begun(*WEB)
    session.publish(snapshot(*WEB, cluster("b"), endpoints("b")))
    session.publish(snapshot(*WEB))

    asked = SotwRequest(ENDPOINTS, names("web", "b"))

    assert contents(session.receive(asked)) == [(ENDPOINTS, ["b"])]


def test_endpoints_of_a_cluster_that_waits_to_go_are_there() -> None:
    """A client that came back while the cluster was warming up asks for them, and answers nothing before."""
    session = SotwSession()
    session.publish(snapshot(*WEB))
    session.receive(SotwRequest(CLUSTER, version=snapshot(*WEB).version(CLUSTER)))
    session.receive(SotwRequest(LISTENER))
    session.publish(moved())

    assert contents(session.receive(SotwRequest(ENDPOINTS, names("web", "new")))) == [(ENDPOINTS, ["new", "web"])]


# --- refusing ---


def test_a_nack_is_known_with_its_text_its_version_and_its_names() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("b"), cluster("c")))

    session.receive(nack(sent, "Error adding/updating cluster(s) b: bad", in_force="before"))

    status = next(status for status in session.statuses if status.type_url == CLUSTER)
    (standing_nack,) = status.nacks
    assert (standing_nack.version, standing_nack.names) == (sent.version, ("b",))
    assert standing_nack.text == "Error adding/updating cluster(s) b: bad"
    assert session.answer == standing_nack
    assert not status.in_sync


def test_what_was_in_force_before_a_nack_is_known() -> None:
    session = begun(*WEB)
    before = next(status.acked for status in session.statuses if status.type_url == ROUTES)
    (sent,) = session.publish(snapshot(*WEB[:3], routes("table", "web", revision=1)))

    session.receive(nack(sent, "bad"))

    status = next(status for status in session.statuses if status.type_url == ROUTES)
    assert status.acked == before != status.sent == sent.version


def test_a_refused_table_is_not_sent_again() -> None:
    session = begun(*WEB)
    bad = routes("table", "web", revision=1)
    (sent,) = session.publish(snapshot(*WEB[:3], bad))

    assert not session.receive(nack(sent, "bad"))
    assert not session.publish(snapshot(*WEB[:2], bad, listener("out", "table")))
    assert contents(session.publish(snapshot(*WEB[:3], routes("table", "web", revision=2)))) == [(ROUTES, ["table"])]


def test_going_back_from_a_refused_table_sends_the_one_before() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB[:3], routes("table", "web", revision=1)))
    session.receive(nack(sent, "bad"))

    assert contents(session.publish(snapshot(*WEB))) == [(ROUTES, ["table"])]


def test_a_refused_cluster_is_left_out_and_what_came_with_it_sent_again() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("bad"), cluster("good")))

    assert contents(session.receive(nack(sent, "cluster bad: no"))) == [(CLUSTER, ["good", "web"])]


def test_a_refused_change_of_a_cluster_leaves_the_one_before_in_the_set() -> None:
    session = begun(*WEB)
    sent, _ = session.publish(snapshot(cluster("web", revision=1), *WEB[1:], cluster("good")))

    (again,) = session.receive(nack(sent, "cluster web: no"))

    assert {packed.name: packed for packed in again.resources} == {"web": WEB[0], "good": cluster("good")}


def test_however_often_a_cluster_is_refused_the_last_good_one_stays_in_the_set() -> None:
    session, good = begun(*WEB), cluster("good")
    for revision in (1, 2):
        clusters, *_ = session.publish(snapshot(cluster("web", revision=revision), *WEB[1:], good))
        accept(session, session.receive(nack(clusters, "cluster web: no")))

    (clusters,) = session.publish(snapshot(cluster("web", revision=2), *WEB[1:], cluster("good", revision=1)))

    assert WEB[0] in clusters.resources


def test_a_nack_that_names_nobody_is_cleared_up_until_the_culprit_stands_alone() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("a"), cluster("b")))

    (first,) = session.receive(nack(sent, "Proto constraint validation failed"))
    (second,) = session.receive(nack(first, "Proto constraint validation failed"))

    assert contents([first, second]) == [(CLUSTER, ["a", "web"]), (CLUSTER, ["b", "web"])]
    assert not session.receive(ack(second))
    (standing_nack,) = (nack for status in session.statuses for nack in status.nacks)
    assert standing_nack.names == ("a",)


def test_what_goes_while_it_is_under_suspicion_is_no_longer_tried() -> None:
    session, wanted_names = SotwSession(), names("a", "b", "c")
    session.publish(snapshot(routes("a"), routes("b"), routes("c")))
    (sent,) = session.receive(SotwRequest(ROUTES, wanted_names))
    (first,) = session.receive(SotwRequest(ROUTES, wanted_names, sent.nonce, error="missing ]"))
    session.publish(snapshot(routes("a"), routes("c")))

    second = session.receive(ack(first, wanted_names))

    assert contents([first, *second]) == [(ROUTES, ["a"]), (ROUTES, ["c"])]


def test_going_back_from_a_refused_cluster_sends_nothing() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("bad")))
    session.receive(nack(sent, "cluster bad: no"))

    assert not session.publish(snapshot(*WEB))
    assert session.is_at(snapshot(*WEB))


def test_a_cluster_that_was_not_answered_for_yet_may_be_what_is_refused_later() -> None:
    """Every full response repeats it."""
    session = begun(*WEB)
    (unanswered,) = session.publish(snapshot(*WEB, cluster("bad")))
    session.expire(unanswered.nonce)
    (sent,) = session.publish(snapshot(*WEB, cluster("bad"), cluster("good")))

    assert contents(session.receive(nack(sent, "cluster bad: no"))) == [(CLUSTER, ["good", "web"])]


def returned_and_refused(*resources: PackedResource) -> SotwSession:
    """The session of a client that came back with an older version, and refused the new one."""
    session = SotwSession()
    session.publish(snapshot(*resources))
    (clusters,) = session.receive(SotwRequest(CLUSTER, version="older"))
    accept(session, session.receive(SotwRequest(ENDPOINTS, NAMED[ENDPOINTS], version="older")))
    assert not session.receive(nack(clusters, "cluster bad: no", in_force="older"))
    return session


def test_a_version_that_was_refused_as_a_whole_is_not_sent_again() -> None:
    session = returned_and_refused(*WEB, cluster("bad"))

    assert not session.publish(snapshot(*WEB, cluster("bad"), routes("other")))


def test_after_a_nack_as_a_whole_every_cluster_is_new_and_gets_its_endpoints() -> None:
    session = returned_and_refused(*WEB, cluster("bad"))
    session.publish(snapshot(*WEB, cluster("bad"), routes("other")))

    assert contents(session.publish(snapshot(*WEB))) == [(CLUSTER, ["web"]), (ENDPOINTS, ["web"])]


def test_after_a_nack_as_a_whole_there_being_no_clusters_is_said() -> None:
    session = returned_and_refused(*WEB, cluster("bad"))

    assert (CLUSTER, []) in contents(session.publish(snapshot()))


def test_a_nack_by_a_client_whose_clusters_are_unknown_leaves_none_of_them_out() -> None:
    """It came back with an older version: what is left out of the next response it would remove."""
    session = SotwSession()
    session.publish(snapshot(*WEB, cluster("bad")))
    (sent,) = session.receive(SotwRequest(CLUSTER, version="older"))

    assert not session.receive(nack(sent, "cluster bad: no", in_force="older"))


def test_of_what_is_held_back_it_is_known_which_version_is_in_force_instead() -> None:
    session = begun(*WEB)
    bad = cluster("web", revision=1)
    sent, *_ = session.publish(snapshot(bad, *WEB[1:], cluster("new", revision=1)))

    session.receive(nack(sent, "cluster web: no; cluster new: no"))

    (status,) = (status for status in session.statuses if status.type_url == CLUSTER)
    assert {(held.name, held.version, held.in_force) for held in status.held_back} == {
        ("web", bad.version, WEB[0].version),
        ("new", cluster("new", revision=1).version, ""),
    }
    (tally,) = (tally for tally in session.tallies if tally.type_url == CLUSTER)
    assert (tally.sent, tally.accepted, tally.rejected) == (2, 1, 1)


def test_a_client_has_answered_all_when_nothing_is_under_way_though_it_may_refuse_something() -> None:
    session, newest = begun(*WEB), snapshot(*WEB, cluster("bad"), listener("more"))
    assert not session.has_answered_all(newest)
    (clusters,) = session.publish(newest)
    assert not session.has_answered_all(newest)

    rest = session.receive(nack(clusters, "cluster bad: no"))
    assert not session.has_answered_all(newest), "the listener is on its way"
    accept(session, rest)

    assert session.has_answered_all(newest)
    assert not session.is_at(newest)


def test_who_asks_for_secrets_alone_is_at_a_snapshot_with_them_and_an_envoy_asks_for_clusters_before() -> None:
    session, newest = SotwSession(), snapshot(*WEB, secret("ca"))
    session.publish(newest)
    (sent,) = session.receive(SotwRequest(SECRET, names("ca")))
    assert not session.is_at(newest)

    session.receive(ack(sent, names("ca")))
    assert session.is_at(newest)
    assert session.has_answered_all(newest)

    accept(session, session.receive(SotwRequest(CLUSTER)))
    assert not session.is_at(newest), "it has not asked for listeners"


def test_a_client_that_has_asked_for_no_listeners_has_not_answered_all() -> None:
    session, newest = SotwSession(), snapshot(*WEB)
    session.publish(newest)
    accept(session, session.receive(SotwRequest(CLUSTER)))

    assert not session.has_answered_all(newest)


def test_a_name_is_not_taken_for_a_part_of_another_name() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("back"), cluster("backend"), cluster("back-2")))

    session.receive(nack(sent, "cluster(s) backend: bad, back-2: bad"))

    (standing_nack,) = (nack for status in session.statuses for nack in status.nacks)
    assert standing_nack.names == ("back-2", "backend")


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("cluster web.x: bad", ("web.x",)),
        ("bad clusters: my.web", ()),
        ("bad cluster web. Another sentence", ("web",)),
        ("cluster web-2 is bad", ()),
    ],
)
def test_nack_blames_only_whole_names(text: str, blamed: tuple[str, ...]) -> None:
    resources = [cluster("web"), cluster("web.x")]

    assert tuple(packed.name for packed in culprits(text, resources)) == blamed


def test_removal_is_sent_though_the_version_was_acked_before() -> None:
    """The client may have applied `c` of the response that it NACKed for `b`, so that it has no version of ours."""
    session = begun(*WEB)
    (nacked,) = session.publish(snapshot(*WEB, listener("b"), listener("c")))
    (clusters,) = session.publish(snapshot(*WEB, cluster("new")))
    assert not session.receive(nack(nacked, "listener b: no"))

    assert contents(session.receive(ack(clusters))) == [(LISTENER, ["out"])]


def test_a_late_error_with_the_new_version_is_an_acceptance() -> None:
    """Clusters got stuck, the next response freed them: Envoy accepts it, and says what was wrong with the last."""
    session = begun(*WEB)
    (stuck,) = session.publish(snapshot(*WEB, cluster("stuck")))
    session.expire(stuck.nonce)
    (freed,) = session.publish(snapshot(*WEB, cluster("right")))

    session.receive(nack(freed, "cluster stuck: min_ring_size", in_force=freed.version))

    assert session.answer == freed.version
    assert not [status.nacks for status in session.statuses if status.nacks]


# --- coming back ---


def returned(newer: Snapshot, *, trusts_versions: bool = True) -> list[Response]:
    """What a client is sent that had `WEB` on an earlier stream."""
    before = snapshot(*WEB)
    session = SotwSession(trusts_versions=trusts_versions)
    session.publish(newer)
    requests = [SotwRequest(t, NAMED.get(t, frozenset()), version=before.version(t)) for t in TYPES[:4]]
    return [response for request in requests for response in session.receive(request)]


def test_a_client_that_comes_back_to_what_it_has_is_sent_nothing() -> None:
    assert not returned(snapshot(*WEB))


def test_a_version_counts_though_it_comes_with_a_nonce_of_an_earlier_server() -> None:
    session = SotwSession()
    session.publish(snapshot(*WEB))

    assert not session.receive(SotwRequest(CLUSTER, nonce="old", version=snapshot(*WEB).version(CLUSTER)))


def test_it_does_not_matter_how_what_it_has_is_cut_into_parts() -> None:
    assert not returned(Snapshot(SnapshotPart(WEB[:2]), SnapshotPart(WEB[2:])))


def test_a_client_that_comes_back_is_sent_the_type_that_changed() -> None:
    newer = routes("table", "web", revision=1)

    assert contents(returned(snapshot(*WEB[:3], newer))) == [(ROUTES, ["table"])]


def test_a_client_that_comes_back_to_a_changed_cluster_gets_endpoints_that_it_says_it_has() -> None:
    changed = snapshot(cluster("web", revision=1), *WEB[1:])

    assert contents(returned(changed)) == [(CLUSTER, ["web"]), (ENDPOINTS, ["web"])]


def test_a_client_whose_last_stream_broke_off_is_not_believed() -> None:
    assert [type_url for type_url, _ in contents(returned(snapshot(*WEB), trusts_versions=False))] == [
        CLUSTER,
        ENDPOINTS,
    ]


def test_a_client_that_is_not_believed_is_once_it_accepted_clusters_and_listeners() -> None:
    session = SotwSession(trusts_versions=False)
    session.publish(snapshot(*WEB))
    assert not session.is_settled

    for type_url in (CLUSTER, ENDPOINTS, LISTENER):
        accept(session, session.receive(SotwRequest(type_url, NAMED.get(type_url, frozenset()))))

    assert session.is_settled


def test_endpoints_are_not_sent_again_for_clusters_that_did_without() -> None:
    session = SotwSession()
    session.publish(snapshot(*WEB))
    accept(session, session.receive(SotwRequest(CLUSTER, version="older")))

    assert not session.receive(SotwRequest(ENDPOINTS, NAMED[ENDPOINTS], version=snapshot(*WEB).version(ENDPOINTS)))


def test_routes_asked_for_after_new_listeners_are_sent_whatever_version_the_client_names() -> None:
    """It has that version from a time when it had these routes; since then it dropped them."""
    session = SotwSession()
    gone = snapshot(*WEB[:2])
    session.publish(gone)
    for type_url in (CLUSTER, ENDPOINTS, LISTENER):
        session.receive(SotwRequest(type_url, NAMED.get(type_url, frozenset()), version=gone.version(type_url)))
    session.publish(snapshot(*WEB))

    asked = SotwRequest(ROUTES, NAMED[ROUTES], version=snapshot(*WEB).version(ROUTES))

    assert contents(session.receive(asked)) == [(ROUTES, ["table"])]


# --- clients that name what they want ---


def test_a_client_may_name_the_clusters_that_it_wants() -> None:
    session = SotwSession()
    session.publish(snapshot(cluster("a"), cluster("b"), cluster("c")))

    assert contents(session.receive(SotwRequest(CLUSTER, names("a")))) == [(CLUSTER, ["a"])]
    assert contents(session.receive(SotwRequest(CLUSTER, names("a", "b")))) == [(CLUSTER, ["a", "b"])]
    assert not session.publish(snapshot(cluster("a"), cluster("b"), cluster("c", revision=1)))


def test_a_client_that_names_a_listener_hears_that_there_is_none() -> None:
    session = SotwSession()
    session.publish(snapshot())

    (sent,) = session.receive(SotwRequest(LISTENER, names("backend")))

    assert not list(sent.resources)


def test_a_client_that_names_one_more_is_answered_even_if_that_is_not_there() -> None:
    session = SotwSession()
    session.publish(snapshot(listener("a")))
    (first,) = session.receive(SotwRequest(LISTENER, names("a")))

    more = SotwRequest(LISTENER, names("a", "b"), version=first.version)

    assert contents(session.receive(more)) == [(LISTENER, ["a"])]


def test_a_client_that_named_clusters_and_names_none_any_more_wants_none() -> None:
    session = SotwSession()
    session.publish(snapshot(cluster("a")))
    (sent,) = session.receive(SotwRequest(CLUSTER, names("a")))
    session.receive(ack(sent, names()))

    assert not session.publish(snapshot(cluster("a", revision=1)))


def test_a_client_that_wanted_all_and_names_what_it_wants_is_sent_nothing_else_in_place_of_what_it_refused() -> None:
    session = begun(cluster("a"), cluster("b"))
    (sent,) = session.publish(snapshot(cluster("a", revision=1), cluster("b")))
    session.receive(nack(sent, "cluster a: no"))

    responses = session.receive(SotwRequest(CLUSTER, names("b"), sent.nonce))

    assert contents(responses) == [(CLUSTER, ["b"])]
    assert not any(status.held_back or status.nacks for status in session.statuses)


# --- what it costs ---


def large(name: str) -> PackedResource:
    return PackedResource.of(ENDPOINTS, name, b"x" * 40_000)


def test_streams_of_a_class_send_the_very_same_bytes() -> None:
    shared = SnapshotPart([cluster("a"), cluster("b")])
    messages = []
    for _ in range(2):
        session = SotwSession()
        session.publish(Snapshot(shared, SnapshotPart([listener("own", "own")])))
        messages += [encoded(response) for response in session.receive(SotwRequest(CLUSTER))]

    assert messages[0] is messages[1]


def test_a_large_part_that_others_share_is_not_mixed_with_what_is_one_proxy_s_own() -> None:
    shared, own = SnapshotPart([large("a")]), SnapshotPart([large("b")])
    session = SotwSession()
    session.publish(Snapshot(shared, own))

    first, last = session.receive(SotwRequest(ENDPOINTS, names("a", "b")))

    assert contents([first, last]) == [(ENDPOINTS, ["a"]), (ENDPOINTS, ["b"])]
    assert first.batches[0] is shared.whole(ENDPOINTS)


def test_only_the_last_of_several_responses_has_the_version_of_all() -> None:
    """A client that breaks off in between must not come back and say that it has everything."""
    newer = Snapshot(SnapshotPart([large("a")]), SnapshotPart([large("b")]))
    session = SotwSession()
    session.publish(newer)

    first, last = session.receive(SotwRequest(ENDPOINTS, names("a", "b")))

    assert last.version == newer.version(ENDPOINTS) != first.version


def test_what_was_sent_is_counted() -> None:
    session = begun(*WEB)
    session.publish(snapshot(WEB[0], endpoints("web", revision=1), *WEB[2:]))

    status = next(status for status in session.statuses if status.type_url == ENDPOINTS)

    assert (status.messages, status.resources) == (2, 2)
    assert status.size == len(endpoints("web").frame) + len(endpoints("web", revision=1).frame)


def test_a_client_that_never_answers_costs_no_more_than_a_bounded_memory() -> None:
    session = begun(*WEB)
    for turn in range(1000):
        session.publish(snapshot(*WEB[:3], routes("table", "web", revision=turn)))

    assert len(session._channels[ROUTES]._pending) == MOST_PENDING


def test_a_nack_ends_when_a_newer_version_answers_a_request_for_it() -> None:
    session = begun(*WEB)
    (bad,) = session.publish(snapshot(WEB[0], endpoints("web", revision=1), *WEB[2:]))
    session.receive(nack(bad, "no"))
    newer = snapshot(cluster("web", revision=1), endpoints("web", revision=2), *WEB[2:])

    accept(session, session.publish(newer))

    assert session.is_at(newer)
    assert not any(status.held_back for status in session.statuses)


def test_a_proxy_is_in_sync_once_it_confirmed_everything() -> None:
    session = begun(*WEB)
    newer = snapshot(*WEB[:3], routes("table", "web", revision=1))
    assert session.is_at(snapshot(*WEB))

    (sent,) = session.publish(newer)
    assert not session.is_at(newer)

    session.receive(ack(sent))
    assert session.is_at(newer)


def test_a_proxy_that_did_not_ask_for_listeners_yet_is_not_in_sync() -> None:
    session = SotwSession()
    session.publish(snapshot(*WEB))
    (sent,) = session.receive(SotwRequest(CLUSTER))
    session.receive(ack(sent))

    assert not session.is_at(snapshot(*WEB))

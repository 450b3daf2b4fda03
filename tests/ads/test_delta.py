"""What an incremental stream says, and when it keeps silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cp.ads.session.base import CLUSTER_USERS
from cp.ads.session.delta import DeltaSession
from cp.ads.session.messages import DeltaRequest, ProtocolViolation, Response
from cp.ads.session.wire import encoded_delta
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, TYPES, PackedResource
from cp.translate.snapshot import Snapshot, SnapshotPart
from tests.ads.content import cluster, endpoints, listener, routes, secret, snapshot

WEB = (cluster("web"), endpoints("web"), listener("out", "table"), routes("table", "web"))
NAMED = {ENDPOINTS: frozenset({"web"}), ROUTES: frozenset({"table"})}


def names(*values: str) -> frozenset[str]:
    return frozenset(values)


def ack(response: Response) -> DeltaRequest:
    return DeltaRequest(response.type_url, nonce=response.nonce)


def nack(response: Response, text: str) -> DeltaRequest:
    return DeltaRequest(response.type_url, nonce=response.nonce, error=text)


def contents(responses: list[Response]) -> list[tuple[str, list[str], list[str]]]:
    """The type of each response, the names in it, and the names that it says are gone."""
    return [(r.type_url, sorted(packed.name for packed in r.resources), sorted(r.removed)) for r in responses]


def accept(session: DeltaSession, responses: list[Response]) -> list[Response]:
    """Accept these and all that follows; answers with everything that was sent."""
    sent = list(responses)
    for response in sent:
        sent += session.receive(ack(response))
    return sent


def begun(*resources: PackedResource) -> DeltaSession:
    """A session whose client has these and confirmed them."""
    session = DeltaSession()
    session.publish(snapshot(*resources))
    for type_url in (CLUSTER, ENDPOINTS, LISTENER, ROUTES):
        accept(session, session.receive(DeltaRequest(type_url, NAMED.get(type_url, frozenset()))))
    return session


# --- asking ---


def test_nothing_is_sent_before_there_is_a_snapshot() -> None:
    session = DeltaSession()

    assert not session.receive(DeltaRequest(CLUSTER))
    assert contents(session.publish(snapshot(*WEB))) == [(CLUSTER, ["web"], [])]


@pytest.mark.parametrize("wanted_names", [names(), names("*")], ids=["no names", "a star"])
def test_asking_for_all_clusters_gets_all(wanted_names: frozenset[str]) -> None:
    session = DeltaSession()
    session.publish(snapshot(cluster("a"), cluster("b")))

    assert contents(session.receive(DeltaRequest(CLUSTER, wanted_names))) == [(CLUSTER, ["a", "b"], [])]


def test_there_being_no_clusters_is_an_answer() -> None:
    session = DeltaSession()
    session.publish(snapshot())

    assert contents(session.receive(DeltaRequest(CLUSTER))) == [(CLUSTER, [], [])]


def test_endpoints_are_sent_for_the_names_asked_and_no_others() -> None:
    session = DeltaSession()
    session.publish(snapshot(endpoints("a"), endpoints("b")))

    assert contents(session.receive(DeltaRequest(ENDPOINTS, names("a")))) == [(ENDPOINTS, ["a"], [])]
    assert contents(session.receive(DeltaRequest(ENDPOINTS, names("b")))) == [(ENDPOINTS, ["b"], [])]


def test_a_name_asked_for_again_is_sent_again() -> None:
    session = begun(*WEB)

    assert contents(session.receive(DeltaRequest(ENDPOINTS, names("web")))) == [(ENDPOINTS, ["web"], [])]


def test_a_name_no_longer_asked_for_is_not_kept_up_to_date() -> None:
    session = begun(*WEB)
    session.receive(DeltaRequest(ENDPOINTS, unsubscribe=names("web")))

    assert not session.publish(snapshot(WEB[0], endpoints("web", revision=1), *WEB[2:]))


def test_endpoints_that_are_not_there_are_answered_as_gone() -> None:
    """The cluster is ready at once, without endpoints; after silence it would wait its whole time."""
    session = DeltaSession()
    session.publish(snapshot())

    assert contents(session.receive(DeltaRequest(ENDPOINTS, names("web")))) == [(ENDPOINTS, [], ["web"])]


@pytest.mark.parametrize("type_url", TYPES)
def test_missing_resource_is_reported(type_url: str) -> None:
    session = DeltaSession()
    session.publish(snapshot())

    assert contents(session.receive(DeltaRequest(type_url, names("a")))) == [(type_url, [], ["a"])]


@pytest.mark.parametrize("type_url", TYPES)
def test_missing_routes_and_secrets_are_not_reported_to_envoy(type_url: str) -> None:
    """`test_missing_routes.py` shows the harm (record 0099)."""
    session = DeltaSession(is_envoy=True)
    session.publish(snapshot())

    assert bool(session.receive(DeltaRequest(type_url, names("a")))) == (type_url not in {ROUTES, SECRET})


def test_routes_that_were_not_there_are_sent_once_they_are() -> None:
    session = DeltaSession()
    session.publish(snapshot())
    session.receive(DeltaRequest(ROUTES, names("table")))

    assert contents(session.publish(snapshot(routes("table")))) == [(ROUTES, ["table"], [])]


def test_a_type_that_nobody_serves_is_not_answered() -> None:
    session = DeltaSession()
    session.publish(snapshot(*WEB))

    assert not session.receive(
        DeltaRequest("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", names("x"))
    )
    assert not session.statuses


def test_a_client_may_name_the_clusters_that_it_wants() -> None:
    session = DeltaSession()
    session.publish(snapshot(cluster("a"), cluster("b")))

    assert contents(session.receive(DeltaRequest(CLUSTER, names("a", "c")))) == [(CLUSTER, ["a"], ["c"])]
    assert not session.publish(snapshot(cluster("a"), cluster("b", revision=1)))


def test_a_client_may_stop_wanting_all() -> None:
    session = DeltaSession()
    session.publish(snapshot(cluster("a"), cluster("b")))
    accept(session, session.receive(DeltaRequest(CLUSTER, names("*", "a"))))
    session.receive(DeltaRequest(CLUSTER, unsubscribe=names("*")))

    newer = snapshot(cluster("a", revision=1), cluster("b", revision=1))

    assert contents(session.publish(newer)) == [(CLUSTER, ["a"], [])]


@pytest.mark.parametrize("request_for_all", [DeltaRequest(CLUSTER), DeltaRequest(CLUSTER, names("*"))])
def test_unsubscribing_next_to_wildcard_is_answered(request_for_all: DeltaRequest) -> None:
    session = DeltaSession()
    session.publish(snapshot(cluster("a"), cluster("b")))
    accept(session, session.receive(request_for_all))
    accept(session, session.receive(DeltaRequest(CLUSTER, names("a", "missing"))))

    sent = accept(session, session.receive(DeltaRequest(CLUSTER, unsubscribe=names("a", "missing"))))

    assert contents(sent) == [(CLUSTER, ["a"], ["missing"])]
    assert contents(session.publish(snapshot(cluster("a", revision=1), cluster("b")))) == [(CLUSTER, ["a"], [])]


def test_unsubscribing_next_to_wildcard_is_answered_after_a_nack() -> None:
    session = DeltaSession()
    session.publish(snapshot(cluster("a")))
    accept(session, session.receive(DeltaRequest(CLUSTER, names("*", "a"))))
    (sent,) = session.publish(snapshot(cluster("a", revision=1)))
    session.receive(nack(sent, "cluster a: no"))

    assert contents(session.receive(DeltaRequest(CLUSTER, unsubscribe=names("a")))) == [(CLUSTER, ["a"], [])]


def test_unsubscribing_without_wildcard_is_not_answered() -> None:
    session = DeltaSession()
    session.publish(snapshot(cluster("a"), cluster("b")))
    accept(session, session.receive(DeltaRequest(CLUSTER, names("*", "a", "b"))))

    assert not session.receive(DeltaRequest(CLUSTER, unsubscribe=names("*", "a")))


def test_phantom_unsubscription_is_ignored() -> None:
    session = begun(cluster("a"), cluster("b"))
    (sent,) = session.publish(snapshot(cluster("a", revision=1), cluster("b")))
    session.receive(nack(sent, "cluster a: no"))

    assert not session.receive(DeltaRequest(CLUSTER, unsubscribe=names("a")))
    assert [resource.name for status in session.statuses for resource in status.held_back] == ["a"]


def test_repeated_wildcard_is_answered_with_everything() -> None:
    session = begun(cluster("a"), cluster("b"))

    assert contents(session.receive(DeltaRequest(CLUSTER, names("*")))) == [(CLUSTER, ["a", "b"], [])]
    assert not session.publish(snapshot(cluster("a"), cluster("b")))


def test_repeated_wildcard_is_answered_with_nothing() -> None:
    session = begun()

    assert contents(session.receive(DeltaRequest(CLUSTER, names("*")))) == [(CLUSTER, [], [])]


# --- changes ---


def test_an_equal_snapshot_sends_nothing() -> None:
    assert not begun(*WEB).publish(snapshot(*WEB))


def test_only_what_changed_is_sent() -> None:
    session = begun(*WEB, cluster("b"), cluster("c"))

    sent = session.publish(snapshot(*WEB, cluster("b", revision=1), cluster("d")))

    assert contents(sent) == [(CLUSTER, ["b", "d"], [])]


def test_a_secret_that_changed_is_sent() -> None:
    session = DeltaSession()
    session.publish(snapshot(secret("ca"), secret("identity")))
    session.receive(DeltaRequest(SECRET, names("ca", "identity")))

    assert contents(session.publish(snapshot(secret("ca", revision=1), secret("identity")))) == [(SECRET, ["ca"], [])]


def test_a_changed_cluster_gets_its_endpoints_again_right_behind() -> None:
    session = begun(*WEB)

    sent = session.publish(snapshot(cluster("web", revision=1), *WEB[1:]))

    assert contents(sent) == [(CLUSTER, ["web"], []), (ENDPOINTS, ["web"], [])]


def test_listeners_that_are_gone_are_named() -> None:
    session = begun(*WEB)

    assert contents(session.publish(snapshot(*WEB[:2], WEB[3]))) == [(LISTENER, [], ["out"])]


def test_endpoints_are_removed_after_their_cluster() -> None:
    session = begun(*WEB)

    sent = accept(session, session.publish(snapshot(*WEB[2:3], routes("table"))))

    assert contents(sent) == [(ROUTES, ["table"], []), (CLUSTER, [], ["web"]), (ENDPOINTS, [], ["web"])]


def test_endpoints_that_were_unsubscribed_are_not_removed() -> None:
    """Envoy unsubscribes before it ACKs the removal of the cluster."""
    session = begun(*WEB)
    (table,) = session.publish(snapshot(*WEB[2:3], routes("table")))
    (removal,) = session.receive(ack(table))
    session.receive(DeltaRequest(ENDPOINTS, unsubscribe=names("web")))

    assert not session.receive(ack(removal))


def test_routes_are_removed_after_their_listener() -> None:
    session = begun(*WEB)

    (listeners,) = session.publish(snapshot(*WEB[:2]))

    assert contents([listeners]) == [(LISTENER, [], ["out"])]
    assert contents(session.receive(ack(listeners))) == [(ROUTES, [], ["table"])]


@pytest.mark.parametrize("make", [secret, endpoints, routes])
def test_removal_is_sent_to_a_client_of_one_type(make: Callable[[str], PackedResource]) -> None:
    session = DeltaSession()
    session.publish(snapshot(make("a"), make("b")))
    type_url = make("a").type_url
    accept(session, session.receive(DeltaRequest(type_url, names("a", "b"))))

    sent = accept(session, session.publish(snapshot(make("a"))))

    assert contents(sent) == [(type_url, [], ["b"])]
    assert session._channels[type_url].is_at(snapshot(make("a")))
    assert contents(session.publish(snapshot(make("a"), make("b")))) == [(type_url, ["b"], [])]


def test_secret_is_removed_after_its_listener() -> None:
    session = begun(*WEB, secret("certificate"))
    accept(session, session.receive(DeltaRequest(SECRET, names("certificate"))))

    sent = accept(session, session.publish(snapshot(*WEB[:2])))

    assert contents(sent) == [(LISTENER, [], ["out"]), (ROUTES, [], ["table"]), (SECRET, [], ["certificate"])]


def test_a_cluster_that_goes_and_comes_back_gets_its_endpoints() -> None:
    session = begun(*WEB)
    accept(session, session.publish(snapshot(*WEB[2:3], routes("table"))))

    sent = session.publish(snapshot(*WEB))
    sent += session.receive(DeltaRequest(ENDPOINTS, unsubscribe=names("web")))
    sent += session.receive(DeltaRequest(ENDPOINTS, names("web")))

    assert (ENDPOINTS, ["web"], []) in contents(sent)[1:]


# --- the order of things ---


def moved() -> Snapshot:
    """The table goes to a new cluster, and the old one is gone."""
    return snapshot(cluster("new"), endpoints("new"), WEB[2], routes("table", "new"))


def test_clusters_come_first_then_routes_then_the_old_cluster_goes() -> None:
    session = begun(*WEB)

    (clusters,) = session.publish(moved())
    (table,) = session.receive(ack(clusters))
    (removal,) = session.receive(ack(table))

    assert contents([clusters, table, removal]) == [
        (CLUSTER, ["new"], []),
        (ROUTES, ["table"], []),
        (CLUSTER, [], ["web"]),
    ]


def test_a_deadline_lets_the_routes_go() -> None:
    session = begun(*WEB)
    (clusters,) = session.publish(moved())
    assert session.awaited_answer == clusters.nonce

    assert contents(session.expire(clusters.nonce)) == [(ROUTES, ["table"], [])]


def test_answers_of_clusters_that_were_stuck_come_late_and_each_for_itself() -> None:
    session = begun(*WEB)
    (stuck,) = session.publish(snapshot(*WEB, cluster("stuck")))
    session.expire(stuck.nonce)
    (freed,) = session.publish(snapshot(*WEB, cluster("stuck", revision=1)))

    session.receive(nack(stuck, "cluster stuck: min_ring_size"))
    session.receive(ack(freed))

    assert session.answer == freed.version
    assert session.is_at(snapshot(*WEB, cluster("stuck", revision=1)))


def test_a_cluster_stays_while_the_routes_that_leave_it_are_refused() -> None:
    session = begun(*WEB)
    (clusters,) = session.publish(moved())
    (table,) = session.receive(ack(clusters))

    assert not session.receive(nack(table, "no good"))
    assert contents(
        session.publish(snapshot(cluster("new"), endpoints("new"), WEB[2], routes("table", "new", revision=1)))
    )


def test_a_client_that_wants_all_listeners_while_clusters_are_awaited_gets_all_behind_them() -> None:
    session = DeltaSession()
    session.publish(snapshot(cluster("a"), listener("out"), listener("more")))
    accept(session, session.receive(DeltaRequest(CLUSTER)))
    accept(session, session.receive(DeltaRequest(LISTENER, names("out"))))
    newer = (listener("out", revision=1), listener("more"))
    (listeners,) = session.publish(snapshot(cluster("a"), *newer))
    (clusters,) = session.publish(snapshot(cluster("a"), cluster("b"), *newer))

    assert not session.receive(DeltaRequest(LISTENER, names("*")))
    assert not session.receive(ack(listeners))
    assert contents(session.receive(ack(clusters))) == [(LISTENER, ["more", "out"], [])]


# --- refusing ---


def test_a_nack_is_known_with_its_text_and_its_names() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("b"), cluster("c")))

    session.receive(nack(sent, "Error adding/updating cluster(s) b: bad"))

    (standing_nack,) = (nack for status in session.statuses for nack in status.nacks)
    assert (standing_nack.version, standing_nack.names) == (sent.version, ("b",))
    assert standing_nack.text == "Error adding/updating cluster(s) b: bad"


def test_what_was_refused_is_not_sent_again_and_what_came_with_it_is() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("bad"), cluster("good")))

    again = accept(session, session.receive(nack(sent, "cluster bad: no")))

    assert contents(again) == [(CLUSTER, ["good"], [])]
    assert contents(session.publish(snapshot(*WEB, cluster("bad"), cluster("good", revision=1)))) == [
        (CLUSTER, ["good"], [])
    ]


def test_a_nack_that_names_nobody_is_cleared_up_until_the_culprit_stands_alone() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("a"), cluster("b")))

    (first,) = session.receive(nack(sent, "Proto constraint validation failed"))
    (second,) = session.receive(nack(first, "Proto constraint validation failed"))

    assert contents([first, second]) == [(CLUSTER, ["a"], []), (CLUSTER, ["b"], [])]
    assert not session.receive(ack(second))
    assert contents(session.publish(snapshot(*WEB, cluster("a", revision=1), cluster("b")))) == [(CLUSTER, ["a"], [])]


def test_finding_the_culprit_among_many_takes_few_responses() -> None:
    many = [routes(f"t{number}") for number in range(500)]
    session = DeltaSession()
    session.publish(snapshot(*many))
    sent = session.receive(DeltaRequest(ROUTES, names(*(packed.name for packed in many))))

    for response in sent:
        is_bad = any(packed.name == "t77" for packed in response.resources)
        sent += session.receive(nack(response, "missing ]: [") if is_bad else ack(response))

    (standing_nack,) = (nack for status in session.statuses for nack in status.nacks)
    assert standing_nack.names == ("t77",)
    assert len(sent) < 40


def test_going_back_from_what_was_refused_sends_what_was_there_before() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB[:3], routes("table", "web", revision=1)))
    session.receive(nack(sent, "bad"))

    assert contents(session.publish(snapshot(*WEB))) == [(ROUTES, ["table"], [])]
    assert not [status.nacks for status in session.statuses if status.nacks]


def test_a_refused_cluster_that_is_taken_back_is_taken_back_from_the_client_too() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB, cluster("bad")))
    session.receive(nack(sent, "cluster bad: no"))

    assert contents(session.publish(snapshot(*WEB))) == [(CLUSTER, [], ["bad"])]


def test_a_removal_that_came_with_what_was_refused_is_repeated() -> None:
    session = begun(*WEB, listener("in", "table"))
    (sent,) = session.publish(snapshot(*WEB, listener("bad", "table")))
    assert contents([sent]) == [(LISTENER, ["bad"], ["in"])]

    assert contents(session.receive(nack(sent, "listener bad: no"))) == [(LISTENER, [], ["in"])]


def test_what_was_refused_is_not_sent_again_though_it_is_asked_for_again() -> None:
    session = begun(*WEB)
    (sent,) = session.publish(snapshot(*WEB[:3], routes("table", "web", revision=1)))
    session.receive(nack(sent, "bad"))

    assert not session.receive(DeltaRequest(ROUTES, names("table")))


def test_a_removal_that_is_refused_alone_is_known_and_not_repeated() -> None:
    session = begun(*WEB, listener("in", "table"))
    (sent,) = session.publish(snapshot(*WEB))

    assert not session.receive(nack(sent, "no"))
    assert [nack.version for status in session.statuses for nack in status.nacks] == [sent.version]
    assert not session.is_at(snapshot(*WEB))


def test_what_was_refused_is_forgotten_by_a_client_that_stops_wanting_all() -> None:
    session = begun(cluster("a"), cluster("b"))
    (sent,) = session.publish(snapshot(cluster("a", revision=1), cluster("b")))
    session.receive(nack(sent, "cluster a: no"))

    session.receive(DeltaRequest(CLUSTER, names("b"), unsubscribe=names("*")))

    assert not any(status.held_back or status.nacks for status in session.statuses)
    assert not contents(session.publish(snapshot(cluster("a", revision=2), cluster("b"))))


# --- coming back ---


def returned(
    newer: Snapshot, *, trusts_versions: bool = True, keeps_unknown: bool = False
) -> tuple[DeltaSession, list[Response]]:
    """What a client is sent that had `WEB` on an earlier stream."""
    session = DeltaSession(trusts_versions=trusts_versions, keeps_unknown=keeps_unknown)
    session.publish(newer)
    requests = (
        DeltaRequest(p.type_url, NAMED.get(p.type_url, frozenset()), initial_versions={p.name: p.version}) for p in WEB
    )
    return session, [response for request in requests for response in session.receive(request)]


def test_a_client_that_comes_back_to_what_it_has_is_sent_nothing() -> None:
    assert not returned(snapshot(*WEB))[1]


def test_a_client_that_comes_back_is_sent_the_differences() -> None:
    newer = snapshot(*WEB[:3], routes("table", "web", revision=1), cluster("b"))

    session, sent = returned(newer)

    assert contents(accept(session, sent)) == [(CLUSTER, ["b"], []), (ROUTES, ["table"], [])]


def test_a_client_that_comes_back_to_a_changed_cluster_gets_endpoints_that_it_says_it_has() -> None:
    changed = snapshot(cluster("web", revision=1), *WEB[1:])

    assert contents(returned(changed)[1]) == [(CLUSTER, ["web"], []), (ENDPOINTS, ["web"], [])]


def test_a_client_that_comes_back_keeps_a_cluster_until_its_routes_left_it() -> None:
    session, sent = returned(moved())

    assert contents(accept(session, sent)) == [
        (CLUSTER, ["new"], []),
        (ROUTES, ["table"], []),
        (CLUSTER, [], ["web"]),
        (ENDPOINTS, [], ["web"]),
    ]


def test_unknown_cluster_stays_until_it_is_removed() -> None:
    newer = moved()
    session, sent = returned(newer, keeps_unknown=True)
    assert contents(accept(session, sent)) == [(CLUSTER, ["new"], []), (ROUTES, ["table"], [])]
    assert session.is_at(newer)
    assert session.awaited_answer is None

    assert (CLUSTER, [], ["web"]) in contents(accept(session, session.remove_unknown()))
    assert session.is_at(newer)


def test_unknown_cluster_that_returns_is_not_removed() -> None:
    session, sent = returned(moved(), keeps_unknown=True)
    accept(session, sent)
    both = snapshot(*moved().parts[0], cluster("web", revision=1), endpoints("web"))

    assert contents(accept(session, session.publish(both))) == [(CLUSTER, ["web"], []), (ENDPOINTS, ["web"], [])]
    assert not session.remove_unknown()


def test_a_client_that_comes_back_without_routes_keeps_a_cluster_until_the_deadline() -> None:
    session = DeltaSession()
    session.publish(snapshot())
    assert not session.receive(DeltaRequest(CLUSTER, initial_versions={"web": WEB[0].version}))
    assert session.awaited_answer == CLUSTER_USERS

    assert contents(session.expire(CLUSTER_USERS)) == [(CLUSTER, [], ["web"])]


def test_what_a_client_says_it_has_and_does_not_ask_for_is_not_sent() -> None:
    session = DeltaSession()
    session.publish(snapshot(endpoints("a"), endpoints("b")))

    assert not session.receive(
        DeltaRequest(ENDPOINTS, names("a"), initial_versions={"a": endpoints("a").version, "b": "old"})
    )


def test_a_client_whose_last_stream_broke_off_gets_endpoints_that_it_says_it_has() -> None:
    """A cluster of it may still be waiting for them."""
    assert contents(returned(snapshot(*WEB), trusts_versions=False)[1]) == [(ENDPOINTS, ["web"], [])]


def test_endpoints_of_an_old_cluster_stay_until_it_is_removed() -> None:
    session, sent = returned(moved())

    assert (ENDPOINTS, [], ["web"]) not in contents(sent)
    assert contents(accept(session, sent))[-2:] == [(CLUSTER, [], ["web"]), (ENDPOINTS, [], ["web"])]


def test_missing_endpoints_are_reported_at_once_after_a_broken_stream() -> None:
    """The old cluster may be warming, and so hold up everything else."""
    assert (ENDPOINTS, [], ["web"]) in contents(returned(moved(), trusts_versions=False)[1])


@pytest.mark.parametrize("changed", [cluster("web", revision=1), listener("out", "table", revision=1)])
@pytest.mark.parametrize("is_secret_first", [True, False])
def test_secrets_are_sent_again_behind_a_change(changed: PackedResource, is_secret_first: bool) -> None:
    """The changed cluster or listener may wait for a secret that the client has, without a request that says so."""
    session = DeltaSession()
    ca = secret("ca")
    same = (packed for packed in WEB if packed.type_url != changed.type_url)
    session.publish(snapshot(*same, changed, ca))
    requests = [
        DeltaRequest(p.type_url, NAMED.get(p.type_url, frozenset()), initial_versions={p.name: p.version}) for p in WEB
    ]
    for_secrets = DeltaRequest(SECRET, names("ca"), initial_versions={"ca": ca.version})
    requests.insert(0 if is_secret_first else len(requests), for_secrets)

    sent = accept(session, [response for request in requests for response in session.receive(request)])

    assert contents(sent).index((changed.type_url, [changed.name], [])) < contents(sent).index((SECRET, ["ca"], []))
    assert len([response for response in sent if response.type_url == SECRET]) == 1


def test_what_a_client_says_it_has_is_compared_once_there_is_a_snapshot() -> None:
    session = DeltaSession()
    session.receive(DeltaRequest(CLUSTER, initial_versions={"web": WEB[0].version, "old": "1"}))
    session.receive(DeltaRequest(LISTENER))
    session.receive(DeltaRequest(ROUTES))

    assert contents(session.publish(snapshot(*WEB))) == [(LISTENER, ["out"], [])]


def test_what_a_client_says_it_has_counts_in_its_first_request_alone() -> None:
    session = begun(*WEB)

    assert not session.receive(DeltaRequest(CLUSTER, initial_versions={"old": "1"}))
    assert not session.receive(DeltaRequest(ENDPOINTS, initial_versions={"web": "old"}))


# --- what it costs ---


MANY = [f"cluster-{number}" for number in range(101)]


@pytest.fixture
def _few_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cp.ads.session.messages.MOST_NAMES", len(MANY) - 1)


@pytest.mark.usefixtures("_few_names")
def test_requests_together_name_no_more_than_one_may() -> None:
    session = DeltaSession()
    session.receive(DeltaRequest(ENDPOINTS, names(*MANY[:-1])))

    with pytest.raises(ProtocolViolation, match="the stream asks for 101 endpoints: 100 are the most"):
        session.receive(DeltaRequest(ENDPOINTS, names(MANY[-1])))


@pytest.mark.usefixtures("_few_names")
def test_names_that_a_client_gives_up_make_room_for_others() -> None:
    session = DeltaSession()
    session.receive(DeltaRequest(ENDPOINTS, names(*MANY[:-1])))
    session.receive(DeltaRequest(ENDPOINTS, names(MANY[-1]), unsubscribe=names(MANY[0])))

    assert session.asks_for(ENDPOINTS, MANY[-1])


def test_the_names_of_a_stream_are_not_endlessly_long() -> None:
    session = DeltaSession()

    for number in range(7):
        session.receive(DeltaRequest(ROUTES, names(str(number).rjust(1024 * 1024, "x"))))
    with pytest.raises(ProtocolViolation, match=r"8 routes with unknown names and .* bytes: 8388608 are the most"):
        session.receive(DeltaRequest(ROUTES, names("7".rjust(1024 * 1024, "x"))))


def test_streams_of_a_class_send_the_very_same_bytes() -> None:
    before, after = SnapshotPart([cluster("a"), cluster("b")]), SnapshotPart([cluster("a"), cluster("b", revision=1)])
    messages = []
    for own in ("one", "two"):
        session, mine = DeltaSession(), SnapshotPart([listener(own, own)])
        session.publish(Snapshot(before, mine))
        messages.append([encoded_delta(r) for r in accept(session, session.receive(DeltaRequest(CLUSTER)))])
        messages[-1] += [encoded_delta(response) for response in session.publish(Snapshot(after, mine))]

    assert len(messages[0]) == 2
    assert all(one is other for one, other in zip(*messages, strict=True))


def test_streams_of_a_class_hold_one_set_of_names() -> None:
    known_sets: dict[frozenset[str], frozenset[str]] = {}
    sessions = [DeltaSession(lambda names: known_sets.setdefault(names, names)) for _ in range(2)]
    for session in sessions:
        session.receive(DeltaRequest(ENDPOINTS, names("a", "b")))

    one, other = (session._channels[ENDPOINTS].subscription.names for session in sessions)
    assert one is other


def test_what_was_sent_is_counted() -> None:
    session = begun(*WEB)
    session.publish(snapshot(*WEB, cluster("b"), cluster("c")))

    status = next(status for status in session.statuses if status.type_url == CLUSTER)

    assert (status.messages, status.resources) == (2, 3)


def test_equal_content_is_the_same_version_for_both_kinds_of_streams() -> None:
    (status,) = (status for status in begun(*WEB).statuses if status.type_url == CLUSTER)

    assert status.sent == status.acked == snapshot(*WEB).version(CLUSTER)

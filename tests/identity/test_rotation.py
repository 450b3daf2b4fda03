"""How the trust record of a mesh goes on, step by step."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from cp.identity.rotation import (
    NOT_READY,
    READY,
    EnabledAuthority,
    Moment,
    ProxyReadiness,
    TrustTimes,
    advanced,
    is_settled,
    switched_off,
)
from cp.identity.trust import NO_TRUST, TrustRecord

TIMES: Final = TrustTimes(propagation=10, patience=60)
LIFE: Final = 1_000.0
STARTED: Final = -1_000.0


def enabled(name: str, **fields: Any) -> EnabledAuthority:
    values = {"certificates": name, "backend": f"of {name}", "lifetime": LIFE, "is_permissive": False, **fields}
    return EnabledAuthority(fingerprint=name, **values)


def at(now: float, proxies: ProxyReadiness = READY) -> Moment:
    return Moment(now, STARTED, proxies, TIMES)


def names(record: TrustRecord) -> list[str]:
    return [root.fingerprint for root in record.roots]


FIRST: Final = advanced(NO_TRUST, enabled("old"), at(0))


def test_the_first_authority_is_trusted_and_signs_at_once() -> None:
    record = advanced(NO_TRUST, enabled("old"), at(0, NOT_READY))

    assert (names(record), record.signer, record.callers) == (["old"], "old", True)
    assert is_settled(record, enabled("old"))


def test_another_authority_is_trusted_first_and_signs_once_that_is_known() -> None:
    trusted = advanced(FIRST, enabled("new"), at(100))
    early = advanced(trusted, enabled("new"), at(109))
    late = advanced(early, enabled("new"), at(110))

    assert (names(trusted), trusted.signer) == (["old", "new"], "old")
    assert early == trusted
    assert not is_settled(early, enabled("new"))
    assert (names(late), late.signer) == (["old", "new"], "new")


def test_a_proxy_that_does_not_answer_holds_it_up_for_a_minute() -> None:
    trusted = advanced(FIRST, enabled("new"), at(100))

    assert advanced(trusted, enabled("new"), at(159, NOT_READY)).signer == "old"
    assert advanced(trusted, enabled("new"), at(160, NOT_READY)).signer == "new"


def test_a_control_plane_that_has_just_started_is_as_patient_with_proxies_that_it_has_not_seen() -> None:
    trusted = advanced(FIRST, enabled("new"), at(100))

    def signer(now: float, proxies: ProxyReadiness) -> str:
        return advanced(trusted, enabled("new"), Moment(now, 500, proxies, TIMES)).signer

    assert signer(500, NOT_READY) == "old"
    assert signer(559, NOT_READY) == "old"
    assert signer(560, NOT_READY) == "new"
    assert signer(500, READY) == "new"


def test_what_signs_no_longer_is_trusted_until_all_that_it_signed_has_expired() -> None:
    trusted = advanced(FIRST, enabled("new"), at(100))
    moved = advanced(trusted, enabled("new"), at(110))
    end = 110 + LIFE + 10

    assert [root.until for root in moved.roots] == [end, None]
    assert names(advanced(moved, enabled("new"), at(end - 1))) == ["old", "new"]
    assert names(advanced(moved, enabled("new"), at(end))) == ["new"]


def test_the_longest_life_that_an_authority_ever_gave_counts() -> None:
    longer = advanced(FIRST, enabled("old", lifetime=5_000.0), at(50))
    shorter = advanced(longer, enabled("old", lifetime=10.0), at(60))
    moved = advanced(advanced(shorter, enabled("new"), at(100)), enabled("new"), at(110))

    assert moved.roots[0].until == 110 + 5_000 + 10


def test_one_can_go_back_to_what_signed_before_and_that_signs_at_once() -> None:
    moved = advanced(advanced(FIRST, enabled("new"), at(100)), enabled("new"), at(110))
    back = advanced(moved, enabled("old"), at(120))

    assert back.signer == "old"
    assert [root.until for root in back.roots] == [None, 120 + LIFE + 10]


def test_one_can_go_back_before_the_new_one_has_signed_and_it_is_forgotten() -> None:
    back = advanced(advanced(FIRST, enabled("new"), at(100)), enabled("old"), at(105))

    assert (names(back), back.signer) == (["old"], "old")


def test_a_third_authority_takes_the_place_of_one_that_never_signed() -> None:
    third = advanced(advanced(FIRST, enabled("new"), at(100)), enabled("third"), at(105))

    assert (names(third), third.signer) == (["old", "third"], "old")


def test_callers_wait_under_permissive_until_every_proxy_has_its_certificate() -> None:
    permissive = enabled("old", is_permissive=True)
    begun = advanced(NO_TRUST, permissive, at(0))

    def callers(now: float, proxies: ProxyReadiness) -> bool:
        return advanced(begun, permissive, at(now, proxies)).callers

    assert not begun.callers
    assert not callers(9, READY)
    assert not callers(500, ProxyReadiness(trust=True, identities=False))
    assert not callers(500, ProxyReadiness(trust=False, identities=True))
    assert callers(10, READY)


def test_callers_that_speak_tls_go_on_from_permissive_to_strict_and_back() -> None:
    permissive = enabled("old", is_permissive=True)
    ready = advanced(advanced(NO_TRUST, permissive, at(0)), permissive, at(10))
    strict = advanced(ready, enabled("old"), at(20, NOT_READY))

    assert ready.callers
    assert strict == ready
    assert advanced(strict, permissive, at(30, NOT_READY)).callers


def test_callers_wait_again_after_mtls_was_off() -> None:
    permissive = enabled("old", is_permissive=True)
    off = switched_off(FIRST, at(1_000))
    on = advanced(off, permissive, at(1_100))

    assert not off.callers
    assert off.roots[0].until == 1_000 + LIFE + 10
    assert (on.roots[0].until, on.signer, on.callers) == (None, "old", False)
    assert not advanced(on, permissive, at(1_109)).callers
    assert advanced(on, permissive, at(1_110)).callers


def test_nothing_is_left_some_time_after_mtls_was_switched_off() -> None:
    off = switched_off(FIRST, at(1_000))

    assert switched_off(off, at(2_000)) == off
    assert switched_off(off, at(2_010)) == NO_TRUST


def test_every_step_can_be_taken_again() -> None:
    trusted = advanced(FIRST, enabled("new"), at(100))
    moved = advanced(trusted, enabled("new"), at(110))

    assert advanced(FIRST, enabled("old"), at(1)) == FIRST
    assert advanced(trusted, enabled("new"), at(100)) == trusted
    assert advanced(moved, enabled("new"), at(110)) == moved


STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", ""]), st.floats(0, 300), st.booleans(), st.booleans()), max_size=20
)


@given(STEPS)
def test_whatever_happens_everything_that_is_shown_is_trusted(steps: list[tuple[str, float, bool, bool]]) -> None:
    """A certificate may be shown for as long as it lives, by a proxy that hears nothing of what comes later."""
    record, now, is_on, shown = NO_TRUST, 0.0, False, dict[str, float]()
    for name, seconds, is_ready, is_permissive in steps:
        now += seconds
        if is_on:  # it signs until the very moment at which another one does
            shown[record.signer] = now + LIFE
        before, moment, is_on = record, at(now, READY if is_ready else NOT_READY), bool(name)
        if is_on:
            record = advanced(record, enabled(name, is_permissive=is_permissive), moment)
        else:
            record = switched_off(record, moment)

        assert {signer for signer, until in shown.items() if until > now} <= set(names(record))
        if is_on:
            assert _may_sign(record, before, now)


def _may_sign(record: TrustRecord, before: TrustRecord, now: float) -> bool:
    """Who signs is the same as before, is known, or is the first."""
    if record.signer == before.signer or before.root(before.signer) is None:
        return True
    root = before.root(record.signer)
    return root is not None and root.since <= now - TIMES.propagation

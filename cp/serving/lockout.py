"""Rights with which nobody can become an administrator: told at the start, by `/ready` and by lint.

See record 0060.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.access.keys import OfflineKeys
from cp.access.rights import ADMIN, LOCAL_ADMIN, USER_TOKEN, Rights, Subjects, Verb
from cp.model.violation import Finding, Severity
from cp.settings import Settings

CODE: Final = "nobody-administers"


def lockouts(settings: Settings, rights: Rights, keys: OfflineKeys) -> Iterator[Finding]:
    """Yield a finding if only a token from before, of which nothing is known, can make a caller an administrator."""
    if settings.authentication == "none" or _signed_elsewhere(keys) or _lets_in(settings, rights):
        return
    hint = (
        f"send a request with a token of an administrator that you have, such as `koguma get meshes`; or let the group "
        f"`{ADMIN}` administrate, or make tokens of users (`kinds: [{USER_TOKEN}]`)"
    )
    message = (
        f"no caller can become an administrator without a token that exists already, and none was shown since this "
        f"control plane started: {_administrators(rights.administrators)}, and {_local_want(settings)}"
    )
    file = "" if settings.access_file is None else str(settings.access_file)
    yield Finding(CODE, Severity.WARNING, None, message, hint=hint, file=file)


def _lets_in(settings: Settings, rights: Rights) -> bool:
    """Whether the administrator that needs no token of others, by place or by `admin-user-token`, may do everything."""
    is_there = settings.stores_admin_token or settings.localhost_is_admin
    makes_tokens = settings.issues_user_tokens and settings.takes_user_token_secrets
    may_make_tokens = makes_tokens and rights.may_somewhere(LOCAL_ADMIN, Verb.WRITE, USER_TOKEN).allowed
    return is_there and (rights.is_administrator(LOCAL_ADMIN) or may_make_tokens)


def _signed_elsewhere(keys: OfflineKeys) -> bool:
    """Whether others sign tokens of users, for whomever they please."""
    return bool(keys.public.get(("user", "")))


def _administrators(administrators: Subjects) -> str:
    groups = [f"group `{name}`" for name in sorted(administrators.groups)]
    users = [f"user `{name}`" for name in sorted(administrators.users)]
    named = ", ".join(groups + users)
    return f"the rights name {named}" if named else "the rights name none"


def _local_want(settings: Settings) -> str:
    if settings.localhost_is_admin or settings.stores_admin_token:
        return f"`{ADMIN}`, as whom callers from this machine and the first token come, is none and makes no tokens"
    return "the control plane neither takes callers from this machine for one nor makes a first token"

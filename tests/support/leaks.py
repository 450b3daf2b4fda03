"""Looks for private keys and tokens in what a control plane writes and answers, in every run of every test."""

import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

KEY: Final = b"PRIVATE KEY-----"

_IN_BASE64: Final = tuple(b64encode(bytes(shift) + KEY)[4 if shift else 0 : -4] for shift in range(3))
"""The words as they stand in base64, wherever in a group of three bytes they begin, without what is beside them."""

_TOKEN: Final = re.compile(rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}")


def is_asked_for(path: str, query: bytes = b"") -> bool:
    """Whether a request is for a secret.

    It makes a token, an administrator has something shown, or a proxy gets back the token with which it asked.
    """
    return path.startswith(("/tokens/", "/bootstrap")) or b"reveal=true" in query


def leaks(content: bytes) -> Iterator[str]:
    """What is in a content that nobody may see: each with a little of what stands before it."""
    for words in (KEY, *_IN_BASE64):
        for match in re.finditer(re.escape(words), content):
            yield f"a private key: …{_before(content, match.start())}"
    for match in _TOKEN.finditer(content):
        yield f"a token: …{_before(content, match.start())}"


def _before(content: bytes, end: int) -> str:
    return content[max(0, end - 200) : end].decode(errors="replace")

"""Looks for private keys and tokens in what a control plane writes and answers, in every run of every test."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Final

KEY: Final = b"PRIVATE KEY-----"


def spellings(secret: bytes) -> tuple[bytes, ...]:
    """A secret as it is, and as it stands in base64.

    There it may begin at any of three bytes of a group, and what is in one group with its neighbours is left out.
    """
    return (secret, *(b64encode(bytes(shift) + secret)[4 if shift else 0 : -4] for shift in range(3)))


_KEY_SPELLINGS: Final = spellings(KEY)

_TOKEN: Final = re.compile(rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{100,}")
_GROUP: Final = 4
"""Characters of base64 that stand for bytes of their own."""


def leaks_of_answer(path: str, query: bytes, content: bytes) -> Iterator[str]:
    """What an answer has in it for which nobody has asked.

    Whoever makes a token gets it, and a proxy gets back the token with which it asks for its bootstrap; an
    administrator may have anything shown.
    """
    if b"reveal=true" in query:
        return
    yield from _keys(content)
    if not path.startswith(("/tokens/", "/bootstrap")):
        yield from _tokens(content)


def leaks(content: bytes) -> Iterator[str]:
    """What is in a content that nobody may see: each with a little of what stands before it."""
    yield from _keys(content)
    yield from _tokens(content)


def _keys(content: bytes) -> Iterator[str]:
    for words in _KEY_SPELLINGS:
        for match in re.finditer(re.escape(words), content):
            yield f"a private key: …{_before(content, match.start())}"


def _tokens(content: bytes) -> Iterator[str]:
    for match in _TOKEN.finditer(content):
        yield f"a token: …{_before(content, match.start())}"
    for match in _BASE64.finditer(content):
        if any(_TOKEN.search(decoded) for decoded in _decoded(match.group())):
            yield f"a token in base64: …{_before(content, match.start())}"


def _decoded(text: bytes) -> Iterator[bytes]:
    """What a piece of base64 stands for, wherever in it a group begins."""
    for shift in range(_GROUP):
        whole = (len(text) - shift) // _GROUP * _GROUP
        yield b64decode(text[shift : shift + whole])


def _before(content: bytes, end: int) -> str:
    return content[max(0, end - 200) : end].decode(errors="replace")

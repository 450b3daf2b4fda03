"""Lines of access logs that Envoy writes to its standard output, for whoever started it to send on over TCP.

Envoy itself sends no lines. Each goes into an envelope of JSON with its address; the key in it is a word of Envoy's
environment, which whoever started it chose, so that nobody who calls a proxy can write an envelope of their own into
some log that goes to the same place.

See record 0029.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

VARIABLE: Final = "KOGUMA_LOG_KEY"
"""The environment variable of Envoy's with the key."""

_KEY: Final = f"%ENVIRONMENT({VARIABLE})%"


class LogEnvelope(msgspec.Struct, frozen=True):
    """A line on its way."""

    koguma: str
    to: str
    line: msgspec.Raw

    @property
    def content(self) -> bytes:
        """What is to be sent: text as it is, or an object on a line of its own."""
        raw = bytes(self.line)
        return msgspec.json.decode(raw, type=str).encode() if raw.startswith(b'"') else raw + b"\n"


def sealed(to: str, line: str | dict[str, Any]) -> dict[str, Any]:
    """The format of an envelope, for Envoy to fill in. A text ends with its line break."""
    return {"koguma": _KEY, "to": to, "line": line}


def opened(text: bytes, key: str) -> LogEnvelope | None:
    """What is in a line of Envoy's output, if that is an envelope with this key."""
    if key.encode() not in text:
        return None
    try:
        found = _decoder.decode(text)
    except msgspec.MsgspecError:
        return None
    return found if found.koguma == key else None


_decoder: Final = msgspec.json.Decoder(LogEnvelope)

"""Lines of access logs that Envoy writes to its standard output, and the agent sends on over TCP.

Envoy itself cannot send lines over TCP. Each line is wrapped in an envelope of JSON with the address that it goes to.
The agent that starts an Envoy chooses a key and puts it into Envoy's environment and so into each envelope. A client
that calls the proxy does not know the key, so it cannot smuggle an envelope of its own into a log.

See record 0029.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

VARIABLE: Final = "KOGUMA_LOG_KEY"
"""The variable of Envoy's environment that has the key."""

_KEY: Final = f"%ENVIRONMENT({VARIABLE})%"


class LogEnvelope(msgspec.Struct, frozen=True):
    """A line of a log with its address."""

    koguma: str
    to: str
    line: msgspec.Raw

    @property
    def content(self) -> bytes:
        """The bytes to send: a text as it is, or an object on a line of its own."""
        raw = bytes(self.line)
        return msgspec.json.decode(raw, type=str).encode() if raw.startswith(b'"') else raw + b"\n"


def sealed(to: str, line: str | dict[str, Any]) -> dict[str, Any]:
    """The log format of an envelope, for Envoy to fill in. A text ends with its line break."""
    return {"koguma": _KEY, "to": to, "line": line}


def opened(text: bytes, key: str) -> LogEnvelope | None:
    """The envelope in a line of Envoy's output; None if there is none with this key."""
    if key.encode() not in text:
        return None
    try:
        envelope = _decoder.decode(text)
    except msgspec.MsgspecError:
        return None
    return envelope if envelope.koguma == key else None


_decoder: Final = msgspec.json.Decoder(LogEnvelope)

"""JSON in its canonical form: equal data has equal bytes, whatever the order in which its fields were written."""

from __future__ import annotations

from typing import Final

import msgspec

canonical_json: Final = msgspec.json.Encoder(order="deterministic").encode

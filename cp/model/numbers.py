"""Whole numbers as documents have them, each within what the field of Envoy's holds in which it ends."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

LARGEST: Final = 2**32 - 1

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
"""What a `uint32` holds."""

Port: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65535)]

PortOrNone: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535)]
"""0 is no port."""

Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=LARGEST)]
"""What some 32 bits hold; a validator says which of it makes sense."""

Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Part of a `Number`."""

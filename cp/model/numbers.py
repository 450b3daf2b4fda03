"""The whole numbers of documents, each with the limits of the Envoy field that it ends up in."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

LARGEST: Final = 2**32 - 1

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
"""A `uint32`."""

Port: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65535)]

PortOrNone: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65535)]
"""A port, or 0 for none."""

Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=LARGEST)]
"""An `int32` or a `uint32`; a validator checks which values make sense."""

Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An `int64`, for a `Number`."""

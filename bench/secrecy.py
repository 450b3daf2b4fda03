"""What it costs to decide which documents have secrets: processor time for each kind, next to that of parsing it.

python -m bench.secrecy
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.parse import parse
from cp.resources.redaction import has_secrets
from tests.secrecy.documents import Planter

KINDS: Final = kinds(discover())
TIMES: Final = 200


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(TIMES):
        work()
    return (time.process_time() - began) / TIMES


def main() -> None:
    for data in {document["type"]: document for document in Planter().documents()}.values():
        kind = KINDS[data["type"]]
        document = Document(Key(kind.name, data.get("mesh", ""), data["name"]), data)
        parsing, deciding = _seconds(partial(parse, document, KINDS)), _seconds(partial(has_secrets, kind, data))
        figures = f"parse {parsing * 1e6:5.0f} µs, decide {deciding * 1e6:5.0f} µs, ratio {deciding / parsing:4.2f}"
        print(f"{kind.name:22} {figures}")


if __name__ == "__main__":
    main()

"""The batch protocol: a request on each line of standard input, an answer on each line of standard output."""

from __future__ import annotations

import json
import sys

from tests.conformance.answers import respond


def main() -> None:
    for line in sys.stdin:
        answer = respond(line)
        if answer is not None:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


main()

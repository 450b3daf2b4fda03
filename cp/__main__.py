"""`koguma`, and `python -m cp`."""

from __future__ import annotations

import os
import sys

_COMPLETE = "__complete"


def main() -> None:
    if sys.argv[1:2] == [_COMPLETE]:
        from cp.cli.completing import complete  # noqa: PLC0415  # a shell waits for it, and not for all commands

        complete(sys.argv[2:])
        return
    from cp.cli.main import build  # noqa: PLC0415  # the same

    build()(prog_name="koguma", obj=os.execv)


if __name__ == "__main__":
    main()

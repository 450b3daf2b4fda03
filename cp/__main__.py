"""`koguma`, and `python -m cp`."""

from __future__ import annotations

from cp.cli.main import build


def main() -> None:
    build()(prog_name="koguma")


if __name__ == "__main__":
    main()

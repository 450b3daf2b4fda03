"""Files in the user's home that are for their owner alone."""

from __future__ import annotations

from os.path import realpath
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

_OURS_ALONE: Final = 0o700


def replace_file(file: Path, text: str) -> None:
    """Put a text in the place of a file: all of it, or nothing, and no draft stays. Raises `OSError`, `UnicodeError`.

    A link stays, and it is the file behind it that is replaced: many keep such files elsewhere and link them.

    What is in the folder is hidden from others if the folder is new; the file itself always is.
    """
    file = Path(realpath(file))
    file.parent.mkdir(_OURS_ALONE, parents=True, exist_ok=True)
    prefix = f".{file.name}."
    with NamedTemporaryFile("w", dir=file.parent, prefix=prefix, delete=False, encoding="utf-8") as opened:
        draft = Path(opened.name)  # which was made for its owner alone
        try:
            opened.write(text)
            opened.close()  # or a full disk would be told after the old file is gone
            draft.replace(file)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

"""The file of settings: each key with its value and line, or every fault with its line and what would be right."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cp.model.yaml import NotYaml, ParsedYaml, parse_all
from cp.resources.schema import near

_LARGEST: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What a file says, each value as an environment variable would have it, and what is wrong with the file."""

    path: str = ""
    values: Mapping[str, str] = field(default_factory=dict, repr=False)  # a key of secrets may be among them
    places: Mapping[str, str] = field(default_factory=dict)
    """Where the value of a key stands, such as `koguma.yaml:7 httpPort`."""

    faults: tuple[str, ...] = ()


def settings_in(file: Path, keys: Collection[str]) -> FileSettings:
    """The settings in a file, which may have these keys."""
    try:
        parsed = list(parse_all(_text(file)))
    except (OSError, ValueError) as error:
        return FileSettings(str(file), faults=(f"{file} cannot be read: {getattr(error, 'strerror', '') or error}",))
    except NotYaml as error:
        return FileSettings(str(file), faults=(f"{file}:{error.line}: {error.message}",))
    if not parsed:
        return FileSettings(str(file))
    if len(parsed) > 1 or not isinstance(parsed[0].data, dict):
        return FileSettings(str(file), faults=(f"{file}: must be one document, with a line `key: value` a setting",))
    return _settings(file, parsed[0], keys)


def _text(file: Path) -> str:
    with file.open(encoding="utf-8-sig") as opened:
        text = opened.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ValueError("it is larger than 1 MiB")
    return text


def _settings(file: Path, parsed: ParsedYaml, keys: Collection[str]) -> FileSettings:
    places = {str(key): f"{file}:{_line(parsed, str(key))} {key}" for key in parsed.data}
    faults = tuple(_faults(parsed.data, places, keys))
    values = {key: str(value) for key, value in parsed.data.items() if value is not None and key in keys}
    return FileSettings(str(file), values, places, faults)


def _line(parsed: ParsedYaml, key: str) -> int:
    return (parsed.lines.within(key) or parsed.lines).line


def _faults(data: Mapping[Any, Any], places: Mapping[str, str], keys: Collection[str]) -> Iterator[str]:
    for key, value in data.items():
        if key not in keys:
            hint = near(str(key), keys)
            yield f"{places[str(key)]}: unknown setting" + (f"; {hint}" if hint else "")
        elif isinstance(value, dict | list):
            yield f"{places[key]}: must be a single value; write several names as `one, another`"

"""Data as YAML."""

from __future__ import annotations

from typing import Any, Final

import yaml

_TRUTH_VALUES: Final = frozenset({"y", "Y", "n", "N"})


class _Dumper(yaml.CSafeDumper):
    """YAML that every parser understands: Envoy's takes a bare `n` for a boolean."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    style = '"' if value in _TRUTH_VALUES else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


def yaml_text(data: Any) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)

"""What a TrafficRoute does to requests and their responses, as filters of a row."""

from __future__ import annotations

from collections.abc import Iterator

from cp.resources.legacy.traffic_route import Modify, ModifyHeaders, ModifyHost, ModifyPath, RegexReplace
from generators.proxy import HeaderChange, PathChange, Rewrite, Tags, TextChange


def modifications(modify: Modify) -> Iterator[HeaderChange | Rewrite]:
    for on, headers in (("request", modify.request_headers), ("response", modify.response_headers)):
        if headers is not None:
            removed = tuple(header.name for header in headers.remove or ())
            yield HeaderChange(on, _added(headers, append=False), _added(headers, append=True), removed)
    if modify.path is not None or modify.host is not None:
        host, path = modify.host or ModifyHost(), modify.path or ModifyPath()
        yield Rewrite(host.value or "", _path(path), host_of_path=_text(host.from_path))


def _added(headers: ModifyHeaders, *, append: bool) -> Tags:
    return tuple((header.name, header.value) for header in headers.add or () if (header.append is True) is append)


def _path(path: ModifyPath) -> PathChange | None:
    if path.rewrite_prefix is None and path.regex is None:
        return None
    return PathChange(prefix=path.rewrite_prefix, text=_text(path.regex))


def _text(replace: RegexReplace | None) -> TextChange | None:
    return None if replace is None else TextChange(replace.pattern, replace.substitution)

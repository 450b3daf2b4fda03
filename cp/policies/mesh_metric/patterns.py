"""Regular expressions as patterns of Lua, which Envoy's filter compares names with.

Lua's patterns have no alternatives and no groups that repeat: an expression becomes one pattern for each alternative.
"""

from __future__ import annotations

from typing import Final

_CLASSES: Final = {"d": "%d", "D": "%D", "s": "%s", "S": "%S", "w": "[%w_]", "W": "[^%w_]"}
_REPEATED: Final = "*+?"
_MOST: Final = 256
_DEEPEST: Final = 20


class NotAPattern(Exception):
    """An expression that no patterns of Lua can stand for."""


def patterns(expression: str) -> tuple[str, ...]:
    """The patterns for an expression: one of them matches in a text exactly if the expression does."""
    reader = _Reader(expression)
    alternatives = reader.either(outermost=True)
    if reader.unread:
        raise NotAPattern(f"`{expression}` has a bracket too many")
    return tuple(alternatives)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    @property
    def unread(self) -> str:
        return self._text[self._at :]

    @property
    def _ahead(self) -> str:
        """The next character; empty at the end."""
        return self._text[self._at : self._at + 1]

    def either(self, *, outermost: bool) -> list[str]:
        alternatives = self._sequence(outermost=outermost)
        while self._take("|"):
            alternatives += self._sequence(outermost=outermost)
        return alternatives

    def _sequence(self, *, outermost: bool) -> list[str]:
        prefixes = ["^"] if outermost and self._take("^") else [""]
        while self._ahead and self._ahead not in "|)":
            if outermost and self._ahead == "$" and self._text[self._at + 1 : self._at + 2] in {"", "|"}:
                self._next()
                return [f"{prefix}$" for prefix in prefixes]
            suffixes = self._repeated()
            if len(prefixes) * len(suffixes) > _MOST:
                raise NotAPattern(f"`{self._text}` has more than {_MOST} alternatives")
            prefixes = [prefix + suffix for prefix in prefixes for suffix in suffixes]
        return prefixes

    def _repeated(self) -> list[str]:
        if self._take("("):
            return self._group()
        pattern = self._single()
        if self._ahead == "{":
            raise NotAPattern(f"`{self._text}` counts repetitions")
        if self._ahead and self._ahead in _REPEATED:
            pattern += self._next()
            self._take("?")  # greedy or not, the same names match
        return [pattern]

    def _group(self) -> list[str]:
        if self._take("?") and not self._take(":"):
            raise NotAPattern(f"`{self._text}` has a group with a meaning of its own")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotAPattern(f"`{self._text}` has more than {_DEEPEST} groups within each other")
        alternatives = self.either(outermost=False)
        self._depth -= 1
        if not self._take(")"):
            raise NotAPattern(f"`{self._text}` has a bracket that is not closed")
        if self._take("?"):
            return [*alternatives, ""]
        if self._ahead and self._ahead in "*+{":
            raise NotAPattern(f"`{self._text}` repeats a group")
        return alternatives

    def _single(self) -> str:
        character = self._next()
        if character == ".":
            return "."
        if character == "[":
            return self._set()
        if character == "\\":
            return self._escaped()
        if character in "^$":
            raise NotAPattern(f"`{self._text}` has `{character}` in its middle")
        return _literal(character)

    def _set(self) -> str:
        members = "[^" if self._take("^") else "["
        while self._ahead and (self._ahead != "]" or members in {"[", "[^"}):
            character = self._next()
            if character == "[" and self._ahead == ":":
                raise NotAPattern(f"`{self._text}` names a class of characters")
            if character == "-":
                members += "-" if members[-1].isalnum() and self._ahead.isalnum() else "%-"
            else:
                members += self._escaped().strip("[]") if character == "\\" else _literal(character)
        if not self._take("]"):
            raise NotAPattern(f"`{self._text}` has a set that is not closed")
        return f"{members}]"

    def _escaped(self) -> str:
        character = self._next()
        if character.isalnum() and character not in _CLASSES:
            raise NotAPattern(f"`{self._text}` has `\\{character}`")
        return _CLASSES.get(character) or _literal(character)

    def _take(self, character: str) -> bool:
        if self._ahead != character:
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        if not self._ahead:
            raise NotAPattern(f"`{self._text}` ends too early")
        self._at += 1
        return self._text[self._at - 1]


def _literal(character: str) -> str:
    return character if character.isalnum() or not character.isascii() else f"%{character}"

"""Regular expressions as patterns of Lua, which Envoy's filter compares names with.

Lua's patterns have no alternatives and no groups that repeat: an expression becomes one pattern for each alternative.
"""

from __future__ import annotations

from typing import Final

_CLASSES: Final = {"d": "%d", "D": "%D", "s": "%s", "S": "%S", "w": "[%w_]", "W": "[^%w_]"}
_REPEATED: Final = "*+?"
_MOST: Final = 256


class NotAPattern(Exception):
    """An expression that no patterns of Lua stand for."""


def patterns(expression: str) -> tuple[str, ...]:
    """Patterns of which one is found in a text exactly if the expression is."""
    reader = _Reader(expression)
    found = reader.either(outermost=True)
    if reader.rest:
        raise NotAPattern(f"`{expression}` has a bracket too many")
    return tuple(found)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def rest(self) -> str:
        return self._text[self._at :]

    def either(self, *, outermost: bool) -> list[str]:
        found = self._sequence(outermost=outermost)
        while self._take("|"):
            found += self._sequence(outermost=outermost)
        return found

    def _sequence(self, *, outermost: bool) -> list[str]:
        found = ["^"] if outermost and self._take("^") else [""]
        while self.rest and self.rest[0] not in "|)":
            if outermost and self.rest[0] == "$" and self.rest[1:2] in {"", "|"}:
                self._next()
                return [f"{one}$" for one in found]
            following = self._repeated()
            found = [before + after for before in found for after in following]
            if len(found) > _MOST:
                raise NotAPattern(f"`{self._text}` has more than {_MOST} alternatives")
        return found

    def _repeated(self) -> list[str]:
        if self._take("("):
            return self._group()
        one = self._single()
        if self.rest[:1] == "{":
            raise NotAPattern(f"`{self._text}` counts repetitions")
        if self.rest[:1] and self.rest[0] in _REPEATED:
            one += self._next()
            self._take("?")  # as few as possible or as many: it is found all the same
        return [one]

    def _group(self) -> list[str]:
        if self._take("?") and not self._take(":"):
            raise NotAPattern(f"`{self._text}` has a group with a meaning of its own")
        found = self.either(outermost=False)
        if not self._take(")"):
            raise NotAPattern(f"`{self._text}` has a bracket that is not closed")
        if self._take("?"):
            return [*found, ""]
        if self.rest[:1] and self.rest[0] in "*+{":
            raise NotAPattern(f"`{self._text}` repeats a group")
        return found

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
        found = "[^" if self._take("^") else "["
        while self.rest and (self.rest[0] != "]" or found in {"[", "[^"}):
            character = self._next()
            if character == "[" and self.rest[:1] == ":":
                raise NotAPattern(f"`{self._text}` names a class of characters")
            if character == "-":
                found += "-" if found[-1].isalnum() and self.rest[:1].isalnum() else "%-"
            else:
                found += self._escaped().strip("[]") if character == "\\" else _literal(character)
        if not self._take("]"):
            raise NotAPattern(f"`{self._text}` has a set that is not closed")
        return f"{found}]"

    def _escaped(self) -> str:
        character = self._next()
        if character.isalnum() and character not in _CLASSES:
            raise NotAPattern(f"`{self._text}` has `\\{character}`")
        return _CLASSES.get(character) or _literal(character)

    def _take(self, character: str) -> bool:
        if self.rest[:1] != character:
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        if not self.rest:
            raise NotAPattern(f"`{self._text}` ends too early")
        self._at += 1
        return self._text[self._at - 1]


def _literal(character: str) -> str:
    return character if character.isalnum() or not character.isascii() else f"%{character}"

"""The mutants of a module: small changes to its text, each of which should make a test fail.

Annotations, docstrings, messages (texts with spaces), floats and numbers above ten are left as they are.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_OPPOSITES: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SWAPPED: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_CODE: Final = re.compile(r"[A-Za-z][\w./-]+")
_TYPE_MAKERS: Final = {"TypeVar", "NewType", "ParamSpec", "cast", "TypeAlias"}
_LARGEST: Final = 10
_FEWEST: Final = 2
"""Elements of a collection from which one is dropped."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to the text of a module: some bytes of it are replaced."""

    path: str
    source: str = field(repr=False)
    line: int
    operator: str
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.operator}"

    @property
    def name(self) -> str:
        """A name that no other mutant of the same tree has."""
        return f"{self.path}:{self.start}-{self.end} {self.text}"

    @property
    def changed(self) -> str:
        """The text of the changed module."""
        data = self.source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    @property
    def is_change(self) -> bool:
        """True if the changed module can be parsed, and is another program."""
        return _tree(self.changed) not in {None, _tree(self.source)}

    @property
    def diff(self) -> str:
        texts = self.source.splitlines(), self.changed.splitlines()
        return "\n".join(difflib.unified_diff(*texts, self.path, self.path, n=2, lineterm=""))


def mutants(path: str, source: str) -> list[Mutant]:
    """Return every mutant of a module."""
    tree, offsets = ast.parse(source), _offsets(source)
    found = dict[Mutant, None]()
    for node, operator, text in _changes(tree):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        found[Mutant(path, source, node.lineno, operator, start, end, text)] = None
    return list(found)


def _offsets(source: str) -> list[int]:
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def _tree(source: str) -> str | None:
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return None


_Change = tuple[ast.expr | ast.stmt, str, str]


def _changes(tree: ast.Module) -> Iterator[_Change]:
    for node in _code(tree):
        for kind, changes in _OPERATORS.items():
            if isinstance(node, kind):
                yield from changes(node)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run: no annotations, no docstrings, no parts of formatted strings, nothing about types."""
    if _is_for_types(node):
        return
    yield node
    if isinstance(node, ast.JoinedStr):
        return
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        if name in {"annotation", "returns", "decorator_list", "bases"}:
            continue
        for child in children:
            if isinstance(child, ast.AST) and not _is_docstring(child):
                yield from _code(child)


def _is_for_types(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _TYPE_MAKERS
        case ast.Subscript(value=ast.Name(id="dict" | "list" | "set" | "tuple")):
            return True
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case _:
            return False


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _compare(node: ast.Compare) -> Iterator[_Change]:
    if len(node.ops) == 1:
        changed = ast.Compare(node.left, [_OPPOSITES[type(node.ops[0])]()], node.comparators)
        yield node, "comparison", f"({ast.unparse(changed)})"


def _boolean(node: ast.BoolOp) -> Iterator[_Change]:
    changed = ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    yield node, "and/or", f"({ast.unparse(changed)})"


def _unary(node: ast.UnaryOp) -> Iterator[_Change]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield node, "drop not" if isinstance(node.op, ast.Not) else "drop minus", f"({ast.unparse(node.operand)})"


def _arithmetic(node: ast.BinOp) -> Iterator[_Change]:
    if type(node.op) in _SWAPPED:
        changed = ast.BinOp(node.left, _SWAPPED[type(node.op)](), node.right)
        yield node, "arithmetic", f"({ast.unparse(changed)})"


def _conditions(node: ast.If | ast.While | ast.IfExp | ast.comprehension) -> Iterator[_Change]:
    tests = node.ifs if isinstance(node, ast.comprehension) else [node.test]
    for test in tests:
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, "negate condition", f"(not ({ast.unparse(test)}))"


def _constant(node: ast.Constant) -> Iterator[_Change]:
    match node.value:
        case bool():
            yield node, "flip constant", str(not node.value)
        case int() if node.value <= _LARGEST:
            yield node, "number", str(node.value + 1)
        case str() if _CODE.fullmatch(node.value):
            yield node, "code", repr(f"{node.value}X")


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Change]:
    is_predicate = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
    for statement in ast.walk(node):
        if isinstance(statement, ast.Return) and not _is_none(statement.value):
            assert statement.value is not None
            value = f"not ({ast.unparse(statement.value)})" if is_predicate else "None"
            yield statement, "return", f"return {value}"


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _dropped(node: ast.stmt) -> Iterator[_Change]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield node, "drop statement", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "drop statement", "pass"
        case ast.Continue():
            yield node, "continue/break", "break"
        case ast.Break():
            yield node, "continue/break", "continue"


def _collection(node: ast.Tuple | ast.Set | ast.List) -> Iterator[_Change]:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or len(node.elts) < _FEWEST:
        return
    for index in range(len(node.elts)):
        yield node, "drop element", _display(node, [*node.elts[:index], *node.elts[index + 1 :]])
    for index in range(1, len(node.elts) if isinstance(node, ast.Tuple) else 0):
        before, left, right = node.elts[: index - 1], node.elts[index - 1], node.elts[index]
        yield node, "swap elements", _display(node, [*before, right, left, *node.elts[index + 1 :]])


def _display(node: ast.Tuple | ast.Set | ast.List, elements: list[ast.expr]) -> str:
    text = ", ".join(map(ast.unparse, elements))
    match node:
        case ast.Set():
            return f"{{{text}}}"
        case ast.List():
            return f"[{text}]"
        case _:
            return f"({text}{',' if len(elements) == 1 else ''})"


_OPERATORS: Final[Mapping[type[ast.AST] | tuple[type[ast.AST], ...], Callable[..., Iterable[_Change]]]] = {
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.BinOp: _arithmetic,
    (ast.If, ast.While, ast.IfExp, ast.comprehension): _conditions,
    ast.Constant: _constant,
    (ast.FunctionDef, ast.AsyncFunctionDef): _function,
    ast.stmt: _dropped,
    (ast.Tuple, ast.Set, ast.List): _collection,
}

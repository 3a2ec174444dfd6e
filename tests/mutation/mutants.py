"""Makes mutants of a module: one small fault each, in every function, by rewriting its syntax tree.

Kinds: a comparison turned, an operator exchanged, a number or truth value moved by one, a boundary shifted, a condition
negated, a statement dropped. Docstrings, annotations and `__slots__` are left alone: they change nothing that runs.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitXor: ast.BitOr,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Pow: ast.Mult,
}
_UNTYPED = (ast.AnnAssign,)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: where it stands, what it changes, and the whole mutated source."""

    module: str
    function: str
    line: int
    change: str
    source: str

    @property
    def name(self) -> str:
        """How a survivor is named in the list of reasons: stable while the line's text stays."""
        return f"{self.module}:{self.function}: {self.change}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of every function of a module."""
    tree = ast.parse(source)
    for function, node in _functions(tree):
        for index in range(len(list(_places(node)))):
            yield from _at(module, tree, function, index)


def functions(source: str) -> list[str]:
    """Names of every function of a module, methods as `Class.method`."""
    return [name for name, _ in _functions(ast.parse(source))]


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not _is_protocol_stub(node):
            yield f"{prefix}{node.name}", node


def _is_protocol_stub(node: ast.FunctionDef) -> bool:
    body = [s for s in node.body if not _is_docstring(s)]
    return all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in body)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _places(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Nodes of a function's body that may be changed, in a fixed order."""
    for statement in function.body:
        if not _is_docstring(statement):
            yield from _walk(statement)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_comment") or (field == "exc" and isinstance(node, ast.Raise)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (isinstance(child, ast.stmt) and _is_docstring(child)):
                yield from _walk(child)


def _find(tree: ast.Module, function: str) -> ast.FunctionDef:
    return next(node for name, node in _functions(tree) if name == function)


def _at(module: str, tree: ast.Module, function: str, index: int) -> Iterator[Mutant]:
    """Every change of one place."""
    original = list(_places(_find(tree, function)))[index]
    for number in range(len(_changes(original))):
        clone = copy.deepcopy(tree)
        owner = _find(clone, function)
        place = list(_places(owner))[index]
        line = getattr(place, "lineno", owner.lineno)
        before = ast.unparse(place)
        after = _changes(place)[number](clone)
        if after is None:
            continue
        text = f"{_short(before)} -> {_short(after)}"
        yield Mutant(module, function, line, text, ast.unparse(ast.fix_missing_locations(clone)))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else line[:67] + "..."


def _changes(node: ast.AST) -> list[_Change]:
    """The changes that make sense for one node; each applies itself and says what stands there afterwards."""
    made: list[_Change] = []
    if isinstance(node, ast.Compare):
        made += [_Compare(node, i, other) for i, op in enumerate(node.ops) for other in _COMPARE[type(op)]]
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        made.append(_Operator(node))
    if isinstance(node, ast.BoolOp):
        made.append(_AndOr(node))
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        made += [_Number(node, step) for step in ((1,) if isinstance(node.value, bool) else (1, -1))]
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        made.append(_Negate(node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        made.append(_Sign(node))
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Continue | ast.Break):
        made.append(_Drop(node))
    if isinstance(node, ast.Slice):
        made += [_Boundary(node, side) for side in ("lower", "upper") if getattr(node, side) is not None]
    return made


class _Change:
    def __call__(self, tree: ast.Module) -> str | None:
        raise NotImplementedError


class _Compare(_Change):
    def __init__(self, node: ast.Compare, index: int, other: type[ast.cmpop]) -> None:
        self.node, self.index, self.other = node, index, other

    def __call__(self, tree: ast.Module) -> str:
        self.node.ops[self.index] = self.other()
        return ast.unparse(self.node)


class _Operator(_Change):
    def __init__(self, node: ast.BinOp | ast.AugAssign) -> None:
        self.node = node

    def __call__(self, tree: ast.Module) -> str:
        self.node.op = _OPERATORS[type(self.node.op)]()
        return ast.unparse(self.node)


class _AndOr(_Change):
    def __init__(self, node: ast.BoolOp) -> None:
        self.node = node

    def __call__(self, tree: ast.Module) -> str:
        self.node.op = ast.Or() if isinstance(self.node.op, ast.And) else ast.And()
        return ast.unparse(self.node)


class _Number(_Change):
    def __init__(self, node: ast.Constant, step: int) -> None:
        self.node, self.step = node, step

    def __call__(self, tree: ast.Module) -> str:
        value = self.node.value
        self.node.value = not value if isinstance(value, bool) else value + self.step  # type: ignore[operator]
        return ast.unparse(self.node)


class _Negate(_Change):
    def __init__(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self.node = node

    def __call__(self, tree: ast.Module) -> str:
        self.node.test = ast.UnaryOp(ast.Not(), self.node.test)
        return f"if {ast.unparse(self.node.test)}"


class _Sign(_Change):
    def __init__(self, node: ast.UnaryOp) -> None:
        self.node = node

    def __call__(self, tree: ast.Module) -> str | None:
        parent = next((p for p in ast.walk(tree) for c in ast.iter_child_nodes(p) if c is self.node), None)
        if parent is None:
            return None
        _replace(parent, self.node, self.node.operand)
        return ast.unparse(self.node.operand)


class _Drop(_Change):
    def __init__(self, node: ast.stmt) -> None:
        self.node = node

    def __call__(self, tree: ast.Module) -> str | None:
        for parent in ast.walk(tree):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(parent, field, None)
                if isinstance(block, list) and any(s is self.node for s in block):
                    block[next(i for i, s in enumerate(block) if s is self.node)] = ast.Pass()
                    return "dropped"
        return None


class _Boundary(_Change):
    def __init__(self, node: ast.Slice, side: str) -> None:
        self.node, self.side = node, side

    def __call__(self, tree: ast.Module) -> str:
        bound = getattr(self.node, self.side)
        setattr(self.node, self.side, ast.BinOp(bound, ast.Add(), ast.Constant(1)))
        return ast.unparse(self.node)


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for field, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, field, new)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                if item is old:
                    value[i] = new

"""Makes mutants of a module: one small fault each, in every function, by rewriting its syntax tree.

Kinds: a comparison turned, an operator exchanged, a number or truth value moved by one, a boundary shifted, a condition
negated, a sign or a `not` lost, a statement dropped; of a function that offers none of these, the returned value lost.
Defaults of arguments and of the fields of classes count as numbers of theirs. Left alone: docstrings, annotations, the
messages of errors, `__slots__`, decorators, and what stands outside of functions and classes.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
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
_LONGEST = 90
_Owner = ast.FunctionDef | ast.ClassDef
_Edit = Callable[[ast.AST, ast.AST], None]


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
        """How a survivor is named in the list of reasons: stable while the changed expression stays as it is."""
        return f"{self.module}:{self.function}: {self.change}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of every function of a module; no two have the same name."""
    tree = ast.parse(source)
    for function, owner in _owners(tree):
        places = _places(owner)
        found = [(at, number) for at, (node, _) in enumerate(places) for number in range(len(_edits(node)))]
        lost = [] if found or isinstance(owner, ast.ClassDef) else _results(places)
        named: Counter[str] = Counter()
        for at, number in found or [(at, 0) for at in lost]:
            mutated = copy.deepcopy(tree)
            node, parent = _places(dict(_owners(mutated))[function])[at]
            edit = _lose_result if lost else _edits(node)[number]
            change = _told(node, parent, edit)
            named[change] += 1
            if named[change] > 1:
                change += f" ({named[change]})"
            line = getattr(node, "lineno", owner.lineno)
            yield Mutant(module, function, line, change, ast.unparse(ast.fix_missing_locations(mutated)))


def functions(source: str) -> list[str]:
    """Names of every function of a module, methods as `Class.method`."""
    return [name for name, owner in _owners(ast.parse(source)) if isinstance(owner, ast.FunctionDef)]


def _owners(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Owner]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield f"{prefix}{node.name}", node
            yield from _owners(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not _is_protocol_stub(node):
            yield f"{prefix}{node.name}", node


def _is_protocol_stub(node: ast.FunctionDef) -> bool:
    body = [s for s in node.body if not _is_docstring(s)]
    return all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in body)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _places(owner: _Owner) -> list[tuple[ast.AST, ast.AST]]:
    """Nodes that may be changed, each with its parent, in a fixed order."""
    if isinstance(owner, ast.ClassDef):
        fields = [s for s in owner.body if isinstance(s, ast.AnnAssign) and s.value is not None]
        return [place for field in fields for place in _below(field)]
    return [*_below(owner.args), *(place for statement in owner.body for place in _walk(statement, owner))]


def _walk(node: ast.AST, parent: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    if not _is_docstring(node):
        yield node, parent
        yield from _below(node)


def _below(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_comment") or (field == "exc" and isinstance(node, ast.Raise)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child, node)


def _results(places: list[tuple[ast.AST, ast.AST]]) -> list[int]:
    return [at for at, (node, _) in enumerate(places) if isinstance(node, ast.Return) and node.value is not None]


def _edits(node: ast.AST) -> list[_Edit]:
    """The changes that make sense for one node."""
    made: list[_Edit] = []
    if isinstance(node, ast.Compare):
        made += [_turn(i, other) for i, op in enumerate(node.ops) for other in _COMPARE[type(op)]]
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        made.append(_exchange)
    if isinstance(node, ast.BoolOp):
        made.append(_and_or)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        made.append(_flip)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        made += [_move(step) for step in (1, -1)]
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not _turns_around(node.test):
        made.append(_negate)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        made.append(_lose_sign)
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Continue | ast.Break):
        made.append(_drop)
    if isinstance(node, ast.Slice):
        made += [_shift(side) for side in ("lower", "upper") if getattr(node, side) is not None]
    return made


def _turns_around(test: ast.expr) -> bool:
    """Whether one of the other changes negates a condition already."""
    return (isinstance(test, ast.Compare) and len(test.ops) == 1) or (
        isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    )


def _told(node: ast.AST, parent: ast.AST, edit: _Edit) -> str:
    """Apply a change; what stood there before and what stands there now."""
    shown: list[ast.AST] = [node]
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        shown = [node.test]
    elif isinstance(node, ast.Constant | ast.Slice):
        shown = [node, parent]  # a number says little without what it stands in
    before = [_short(ast.unparse(place)) for place in shown]
    edit(node, parent)
    if edit is _drop:
        return f"{before[0]} -> dropped"
    if isinstance(node, ast.UnaryOp):
        return f"{before[0]} -> {_short(ast.unparse(node.operand))}"
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        shown = [node.test]
    after = [_short(ast.unparse(place)) for place in shown]
    at = -1 if before[-1] != after[-1] else 0
    return f"{before[at]} -> {after[at]}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def _turn(index: int, other: type[ast.cmpop]) -> _Edit:
    def edit(node: ast.AST, parent: ast.AST) -> None:
        node.ops[index] = other()  # type: ignore[attr-defined]

    return edit


def _exchange(node: ast.AST, parent: ast.AST) -> None:
    assert isinstance(node, ast.BinOp | ast.AugAssign)
    node.op = _OPERATORS[type(node.op)]()


def _and_or(node: ast.AST, parent: ast.AST) -> None:
    assert isinstance(node, ast.BoolOp)
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _flip(node: ast.AST, parent: ast.AST) -> None:
    assert isinstance(node, ast.Constant)
    node.value = not node.value


def _move(step: int) -> _Edit:
    def edit(node: ast.AST, parent: ast.AST) -> None:
        node.value += step  # type: ignore[attr-defined]

    return edit


def _negate(node: ast.AST, parent: ast.AST) -> None:
    assert isinstance(node, ast.If | ast.While | ast.IfExp)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _lose_sign(node: ast.AST, parent: ast.AST) -> None:
    assert isinstance(node, ast.UnaryOp)
    _replace(parent, node, node.operand)


def _drop(node: ast.AST, parent: ast.AST) -> None:
    _replace(parent, node, ast.Pass())


def _lose_result(node: ast.AST, parent: ast.AST) -> None:
    assert isinstance(node, ast.Return)
    node.value = ast.Constant(None)


def _shift(side: str) -> _Edit:
    def edit(node: ast.AST, parent: ast.AST) -> None:
        setattr(node, side, ast.BinOp(getattr(node, side), ast.Add(), ast.Constant(1)))

    return edit


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for field, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, field, new)
        elif isinstance(value, list):
            value[:] = [new if item is old else item for item in value]

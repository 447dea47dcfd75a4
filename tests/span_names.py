"""Every (layer, name) of a span that dlobd's source can make, read from the source itself.

What stands in a variable is followed to where it was bound in the same function or module; words that only a run knows
(a job's name, a purpose) become `X`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from dlobd.attribution.lanes import jvm
from dlobd.tracing import names

PACKAGE = Path(names.__file__).parents[1]
OPENERS = {"span": 0, "timed": 0, "past": 0, "add": 0, "_span": 0, "on_import": 0, "Span": 2}
"""Functions that are given a layer and a name -> the position of the layer."""
MAKERS = {
    "": ("span", "past"),
    "job": ("timed", "on_import"),
    "network/exchanges": ("_span",),
    "attribution/lanes": ("add", "Span"),
}
"""Which of them make spans where; elsewhere the same word means something else."""
GENERIC = {"tracing", "attribution/lanes/builder.py", "job/launchers/imports.py", "run/preflight/capacity.py"}
"""What passes on names that it is given, or makes no spans."""
GIVEN = {
    "job/training/step.py": (names.FIRST_STEP, names.STEP),
    "job/own/hooks.py": ("JVM: X",),
    "attribution/lanes/jvm.py": tuple(
        phase.name for phase in (*jvm.DRIVER, *jvm.APPLICATION_MASTER, *jvm.REQUEST, *jvm.EXECUTOR)
    ),
}
"""Module -> the names that it gives to itself by a call, or has in a table, which is not followed."""
X = "X"

Bindings = dict[str, list[tuple[ast.expr, tuple[int, ...]]]]


def made() -> Iterator[tuple[str, str, str]]:
    """(where, layer, name) of each; layer and name are `X` where nothing is known of them."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        if any(module.startswith(room) for room in GENERIC):
            continue
        makers = {maker for room, some in MAKERS.items() if module.startswith(room) for maker in some}
        tree = ast.parse(path.read_text())
        for function, call in _calls(tree, makers):
            bound = _bindings(tree) | (_bindings(function) if function else {})
            for layer, name in _named(call, bound):
                for given in GIVEN.get(module, (name,)) if name == X else (name,):
                    yield f"{module}:{call.lineno}", layer, given


def _calls(tree: ast.Module, makers: set[str]) -> Iterator[tuple[ast.AST | None, ast.Call]]:
    """Each call of a maker, with the outermost function around it; not where a maker itself is made of another one."""
    owners: dict[ast.AST, ast.AST] = {}
    for function in ast.walk(tree):  # outer ones come first
        if isinstance(function, ast.FunctionDef):
            for inner in ast.walk(function):
                owners.setdefault(inner, function)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called, owner = _called(node), owners.get(node)
            inside_maker = any(
                isinstance(f, ast.FunctionDef) and f.name in OPENERS and node in ast.walk(f) for f in ast.walk(tree)
            )
            if called in makers and len(node.args) > OPENERS[called] and not inside_maker:
                yield owner, node


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _named(call: ast.Call, bound: Bindings) -> Iterator[tuple[str, str]]:
    called = _called(call)
    args = call.args[OPENERS[called] :]
    if called == "on_import":  # the name of a module, and the layer of importing it
        for name, layer in product(_words(args[0], bound), _words(args[1], bound)):
            yield layer, f"import {name}"
    elif called == "_span":  # the server's, whose layer is its own
        for name in _words(args[0], bound):
            yield "channel", name
    elif isinstance(args[0], ast.Starred):
        for pair in _followed(args[0].value, bound):
            if isinstance(pair, ast.Tuple):
                yield next(_words(pair.elts[0], bound)), next(_words(pair.elts[1], bound))
    elif len(args) >= 2:
        yield from product(_words(args[0], bound), _words(args[1], bound))


def _words(node: ast.expr, bound: Bindings) -> Iterator[str]:
    """The strings that an expression may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Constant) and node.value is None:
        return
    elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "names":
        yield getattr(names, node.attr)
    elif isinstance(node, ast.JoinedStr):
        parts = (_words(p.value if isinstance(p, ast.FormattedValue) else p, bound) for p in node.values)
        yield from map("".join, product(*map(tuple, parts)))
    elif isinstance(node, ast.IfExp):
        yield from _words(node.body, bound)
        yield from _words(node.orelse, bound)
    elif isinstance(node, ast.Name) and node.id in bound:
        for found in _followed(node, bound):
            yield from _words(found, {name: to for name, to in bound.items() if name != node.id})
    else:
        yield X


def _followed(node: ast.expr, bound: Bindings) -> Iterator[ast.expr]:
    """The expressions to which a variable was bound."""
    if isinstance(node, ast.IfExp):
        yield from _followed(node.body, bound)
        yield from _followed(node.orelse, bound)
    elif isinstance(node, ast.Name) and node.id in bound:
        rest = {name: to for name, to in bound.items() if name != node.id}
        for value, place in bound[node.id]:
            for found in _followed(value, rest):
                yield from _at(found, place, rest)
    else:
        yield node


def _at(node: ast.expr, place: tuple[int, ...], bound: Bindings) -> Iterator[ast.expr]:
    """The member at `place` of nested tuples; -1 stands for each member."""
    if not place:
        yield from _followed(node, bound)
    elif isinstance(node, ast.Tuple | ast.List):
        for member in node.elts if place[0] < 0 else node.elts[place[0] : place[0] + 1]:
            yield from _at(member, place[1:], bound)
    else:
        yield ast.Call(node, [], [])  # a value of the run


def _bindings(scope: ast.AST) -> Bindings:
    """Variable -> what it was assigned, and where in that; parameters are values of the run."""
    found: Bindings = {}

    def bind(target: ast.expr, value: ast.expr, place: tuple[int, ...]) -> None:
        if isinstance(target, ast.Name):
            found.setdefault(target.id, []).append((value, place))
        elif isinstance(target, ast.Tuple):
            for index, member in enumerate(target.elts):
                bind(member, value, (*place, index))

    inside = scope.body if isinstance(scope, ast.Module) else list(ast.walk(scope))
    for node in inside:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                bind(target, node.value, ())
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            bind(node.target, node.value, ())
        elif isinstance(node, ast.For):
            bind(node.target, node.iter, (-1,))
    return found

"""Functions in a form that tells a watcher what they read and call, made from their source.

Reads of globals and attributes, calls, subscripts, iterations and operands become calls of the watcher, which does what
the original would have done. Everything else stays as it is, and a function with a statement that has effects of its
own, or that this does not know, has no such form. Knows nothing of tensors.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any, Final

from .sources import ABOUT_FRAMES, UNREADABLE, UnknownFormError, compiled, definition_of, is_mangled

WATCHED: Final = "__watched__"
"""The name by which the rewritten code has its watcher; it is the mark of such code, too."""
_UNKNOWN: Final = (
    ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef,
    ast.ClassDef, ast.Import, ast.ImportFrom, ast.Match, ast.Try, ast.TryStar,
)  # fmt: skip
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_codes: Final[dict[int, tuple[CodeType, CodeType | None]]] = {}
"""By the id of a function's code, which is kept for it: the rewritten code; None where there is none."""
_MOST_CODES: Final = 4096


def rewritten(function: FunctionType, watcher: Any) -> FunctionType | None:
    """Return a function whose code tells ``watcher``; None where it cannot be made."""
    code = _rewritten_code(function)
    if code is None:
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    if any([name not in cells for name in code.co_freevars]):
        return None
    closure = tuple([cells[name] for name in code.co_freevars])
    names = {WATCHED: watcher, "__builtins__": builtins}  # without which CPython 3.13 cannot warn from here
    made = FunctionType(code, names, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    return made


def _rewritten_code(function: FunctionType) -> CodeType | None:
    known = _codes.get(id(function.__code__))
    if known is None:
        if len(_codes) >= _MOST_CODES:
            _codes.clear()
        known = _codes[id(function.__code__)] = function.__code__, _compiled(function)
    return known[1]


def _compiled(function: FunctionType) -> CodeType | None:
    try:
        definition = definition_of(function.__code__)
        free = function.__code__.co_freevars
        return compiled(_Rewriter(free).definition(definition), free, function.__code__.co_filename)
    except UNREADABLE:
        return None


def _names_bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a function's own scope binds, those of scopes within it left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child.name
        elif isinstance(child, ast.Name) and isinstance(child.ctx, (ast.Store, ast.Del)):
            yield child.id
        if isinstance(child, ast.arg):
            yield child.arg
        if isinstance(child, _COMPREHENSIONS):
            yield from [one.target.id for one in ast.walk(child) if isinstance(one, ast.NamedExpr)]
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _names_bound(child)


def _targets(comprehension: Any) -> Iterator[str]:
    """Yield the names that a comprehension's own scope binds."""
    for generator in comprehension.generators:
        yield from [one.id for one in ast.walk(generator.target) if isinstance(one, ast.Name)]


class _Rewriter(ast.NodeTransformer):
    """Rewrites one function and those that are defined in it."""

    def __init__(self, free: tuple[str, ...]) -> None:
        self._free = frozenset(free)
        self._scopes: list[frozenset[str]] = []

    def definition(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rewrite a function's definition; its defaults are those of the function object."""
        self._function(node)
        return node

    def _function(self, node: Any) -> Any:
        for arg in ast.walk(node.args):
            if isinstance(arg, ast.arg):
                arg.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        self._scopes.append(frozenset(_names_bound(node)))
        body = node.body
        node.body = self.visit(body) if isinstance(body, ast.expr) else self._statements(body)
        self._scopes.pop()
        for packed in (node.args.vararg, node.args.kwarg):
            if packed is not None and not isinstance(body, ast.expr):
                made = told("new", body[0], _name(packed.arg, body[0]))
                node.body.insert(0, ast.copy_location(_assigned(packed.arg, made, body[0]), body[0]))
        return node

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            visited = self.visit(statement)
            made += visited if isinstance(visited, list) else [visited]
        return made

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _UNKNOWN):
            raise UnknownFormError
        return super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if node.decorator_list:
            raise UnknownFormError
        node.args.defaults = [self.visit(one) for one in node.args.defaults]
        node.args.kw_defaults = [None if one is None else self.visit(one) for one in node.args.kw_defaults]
        return self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        node.args.defaults = [self.visit(one) for one in node.args.defaults]
        node.args.kw_defaults = [None if one is None else self.visit(one) for one in node.args.kw_defaults]
        return self._function(node)

    def visit_Name(self, node: ast.Name) -> Any:
        if is_mangled(node.id) or node.id in ABOUT_FRAMES:
            raise UnknownFormError
        if isinstance(node.ctx, ast.Store):
            return node
        if any([node.id in scope for scope in self._scopes]):
            return node
        if isinstance(node.ctx, ast.Del):
            raise UnknownFormError
        if node.id in self._free:
            return told("cell", node, ast.Constant(node.id), node)
        return told("name", node, ast.Constant(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if not isinstance(node.ctx, ast.Load) or is_mangled(node.attr):
            raise UnknownFormError
        return told("attribute", node, self.visit(node.value), ast.Constant(node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            raise UnknownFormError
        return told("item", node, self.visit(node.value), self.visit(node.slice))

    def visit_Slice(self, node: ast.Slice) -> Any:
        given = (node.lower, node.upper, node.step)
        parts = [ast.Constant(None) if part is None else self.visit(part) for part in given]
        return told("slice", node, *parts)

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            if node.args or node.keywords or "__class__" not in self._free:
                raise UnknownFormError
            return node
        args = [self._argument(one) for one in node.args]
        keywords = [ast.keyword(one.arg, self._keyword(one)) for one in node.keywords]
        prepared = told("call", node, self.visit(node.func), *args)
        prepared.keywords = keywords
        return told("new", node, ast.copy_location(ast.Call(prepared, [], []), node))

    def _argument(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Starred):
            return ast.copy_location(ast.Starred(told("iterated", node, self.visit(node.value)), node.ctx), node)
        return self.visit(node)  # type: ignore[no-any-return]

    def _keyword(self, node: ast.keyword) -> ast.expr:
        value = self.visit(node.value)
        return value if node.arg is not None else told("iterated", node.value, value)

    def visit_Starred(self, node: ast.Starred) -> Any:
        if isinstance(node.ctx, ast.Store):
            return node
        node.value = told("iterated", node.value, self.visit(node.value))
        return node

    def _display(self, node: Any) -> Any:
        is_target = not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        return node if is_target else told("new", node, self.generic_visit(node))  # type: ignore[arg-type]

    visit_List = visit_Set = visit_Tuple = _display

    def visit_Dict(self, node: ast.Dict) -> Any:
        if None in node.keys:
            raise UnknownFormError
        return self._display(node)

    def _comprehension(self, node: Any) -> Any:
        first = node.generators[0]
        first.iter = self.visit(first.iter)
        self._scopes.append(frozenset(_targets(node)))
        for generator in node.generators:
            _require_names(generator.target)
            if generator.is_async:
                raise UnknownFormError
            iterated = generator.iter if generator is first else self.visit(generator.iter)
            generator.iter = _iterated(iterated, generator.target)
            generator.ifs = [told("plain", one, self.visit(one)) for one in generator.ifs]
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self.visit(getattr(node, field)))
        self._scopes.pop()
        return told("new", node, node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        wrap = partial(self._plain, how="remainder" if isinstance(node.op, ast.Mod) else "plain")
        node.left, node.right = wrap(node.left), wrap(node.right)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        node.operand = self._plain(node.operand)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        *tested, last = node.values
        node.values = [*map(self._plain, tested), self.visit(last)]
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        is_identity = all([isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops])
        is_single = any([_is_singleton(one) for one in (node.left, *node.comparators)])
        how = "identity" if is_identity else "plain"
        wrap = self.visit if is_identity and is_single else partial(self._plain, how=how)
        node.left, node.comparators = wrap(node.left), [*map(wrap, node.comparators)]
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        node.value = told("formatted", node.value, self.visit(node.value))
        node.format_spec = None if node.format_spec is None else self.visit(node.format_spec)
        return node

    def _plain(self, node: ast.expr, how: str = "plain") -> ast.expr:
        """Rewrite an operand, whose class decides what is done with it."""
        return node if isinstance(node, ast.Constant) else told(how, node, self.visit(node))

    def _tested(self, node: Any) -> Any:
        node.test = self._plain(node.test)
        for field in ("body", "orelse"):
            part = getattr(node, field, None)
            if isinstance(part, list):
                setattr(node, field, self._statements(part))
            elif part is not None:
                setattr(node, field, self.visit(part))
        return node

    visit_If = visit_While = visit_IfExp = _tested

    def visit_Assert(self, node: ast.Assert) -> Any:
        node.test = self._plain(node.test)
        node.msg = None if node.msg is None else self.visit(node.msg)
        return node

    def visit_For(self, node: ast.For) -> Any:
        _require_names(node.target)
        node.iter = _iterated(self.visit(node.iter), node.target)
        node.body, node.orelse = self._statements(node.body), self._statements(node.orelse)
        return node

    def visit_With(self, node: ast.With) -> Any:
        for item in node.items:
            if item.optional_vars is not None:
                _require_names(item.optional_vars)
            item.context_expr = told("entered", item.context_expr, self.visit(item.context_expr))
        node.body = self._statements(node.body)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Assign(self, node: ast.Assign) -> Any:
        only = node.targets[0]
        if len(node.targets) == 1 and isinstance(only, ast.Subscript):
            parts = self.visit(node.value), self.visit(only.value), self.visit(only.slice)
            return ast.copy_location(ast.Expr(told("set_item", node, *parts)), node)
        if any([isinstance(target, ast.Attribute) for target in node.targets]):
            return self._assignments(node)
        for target in node.targets:
            _require_names(target)
        value = self.visit(node.value)
        for target in node.targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                value = told("unpacked", node.value, value, ast.Constant(_pattern(target)))
        node.value = value
        return node

    def _assignments(self, node: ast.Assign) -> list[ast.stmt]:
        """Return the statements of an assignment to names and attributes, each in its turn."""
        value = f"{WATCHED}value"
        statements: list[ast.stmt] = [_assigned(value, self.visit(node.value), node)]
        for target in node.targets:
            if isinstance(target, ast.Attribute) and not is_mangled(target.attr):
                parts = _name(value, node), self.visit(target.value), ast.Constant(target.attr)
                statements.append(ast.Expr(told("set_attribute", target, *parts)))
            elif isinstance(target, ast.Name):
                statements.append(_assigned(target.id, _name(value, node), node))
            else:
                raise UnknownFormError
        return [ast.copy_location(one, node) for one in statements]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        value = self._plain(node.value, "remainder" if isinstance(node.op, ast.Mod) else "plain")
        if isinstance(node.target, ast.Subscript):
            return self._change_of_item(node, node.target, value)
        if not isinstance(node.target, ast.Name):
            raise UnknownFormError
        read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        changed = ast.copy_location(ast.Assign([node.target], told("changed", node, self.visit(read))), node)
        node.value = value
        node.target = ast.copy_location(ast.Name(node.target.id, ast.Store()), node.target)
        return [changed, node]

    def _change_of_item(self, node: ast.AugAssign, target: ast.Subscript, value: ast.expr) -> list[ast.stmt]:
        """Return the statements of ``container[index] += value``: the element is read before the value is evaluated."""
        container, index, element = [f"{WATCHED}{what}" for what in ("container", "index", "element")]
        read = told("item_to_change", node, _name(container, node), _name(index, node))
        write = told("set_item", node, _name(element, node), _name(container, node), _name(index, node))
        statements: list[ast.stmt] = [
            _assigned(container, self.visit(target.value), node),
            _assigned(index, self.visit(target.slice), node),
            _assigned(element, read, node),
            ast.AugAssign(ast.Name(element, ast.Store()), node.op, value),
            ast.Expr(write),
        ]
        return [ast.copy_location(one, node) for one in statements]

    def visit_Delete(self, node: ast.Delete) -> Any:
        for target in node.targets:
            _require_names(target)
        return self.generic_visit(node)


def _is_singleton(node: ast.expr) -> bool:
    """Whether an expression is None, a truth value or an ellipsis, of each of which there is one."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value.__class__ in (bool, type(...)))


def _require_names(target: ast.expr) -> None:
    """Raise UnknownFormError where something other than local names is assigned."""
    for node in ast.walk(target):
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            raise UnknownFormError


def _iterated(iterable: ast.expr, target: ast.expr) -> ast.expr:
    """Return an expression for what a loop goes over, whose elements are assigned to ``target``."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return told("unpacked_in_turn", iterable, iterable, ast.Constant(_pattern(target)))
    return told("iterated", iterable, iterable)


def _pattern(target: ast.Tuple | ast.List) -> Any:
    """Return which parts of what is assigned are unpacked again: a pattern for each of them, None for others."""
    parts = target.elts
    starred = next((place for place, part in enumerate(parts) if isinstance(part, ast.Starred)), len(parts))
    if any([isinstance(part, (ast.Tuple, ast.List)) for part in parts[starred:]]):
        raise UnknownFormError
    return tuple([_pattern(part) if isinstance(part, (ast.Tuple, ast.List)) else None for part in parts[:starred]])


def _name(name: str, place: ast.stmt) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), place)


def _assigned(name: str, value: ast.expr, place: ast.stmt) -> ast.Assign:
    return ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), place)], value)


def told(what: str, place: ast.expr | ast.stmt, *arguments: ast.expr) -> ast.Call:
    """Return a call of a method of the watcher."""
    watcher = ast.Name(WATCHED, ast.Load())
    return ast.copy_location(ast.Call(ast.Attribute(watcher, what, ast.Load()), list(arguments), []), place)

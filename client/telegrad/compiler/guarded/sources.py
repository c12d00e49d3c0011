"""Source of functions: read as a syntax tree, and compiled from one that was changed. Knows nothing of watchers."""

from __future__ import annotations

import ast
import inspect
import tokenize
from types import CodeType
from typing import Final


class UnknownFormError(Exception):
    """The source has a statement that is not rewritten."""


UNREADABLE: Final = (
    OSError, TypeError, SyntaxError, ValueError, IndexError, RecursionError, tokenize.TokenError, UnknownFormError,
)  # fmt: skip
"""What is raised where source is missing, is not that of the function, or has a form that is not rewritten."""


def definition_of(code: CodeType) -> ast.FunctionDef:
    """Return the definition of a function, with the lines that it has in its file; raises where there is no source."""
    lines, begin = inspect.getsourcelines(code)
    is_indented = lines[0][:1].isspace()  # its lines stay as they are, since strings may go over several
    tree = ast.parse(("if 1:\n" if is_indented else "") + "".join(lines))
    ast.increment_lineno(tree, begin - 1 - is_indented)
    return _definition_in(tree.body[0].body if is_indented else tree.body, code)  # type: ignore[attr-defined]


def compiled(definition: ast.FunctionDef, free: tuple[str, ...], file: str) -> CodeType:
    """Return the code of a rewritten function that has these free variables around it."""
    return _inner(compile(_module_of(definition, free), file, "exec"), definition.name)


def _definition_in(statements: list[ast.stmt], code: CodeType) -> ast.FunctionDef:
    """Return the definition of the function that has this code; of a lambda one that returns its expression."""
    first = statements[0]
    if isinstance(first, ast.FunctionDef) and first.name == code.co_name:
        return first
    lambdas = [node for one in statements for node in ast.walk(one) if isinstance(node, ast.Lambda)]
    if code.co_name != "<lambda>" or len(lambdas) != 1:
        raise UnknownFormError
    (only,) = lambdas
    body = [ast.copy_location(ast.Return(only.body), only.body)]
    made = ast.parse("def f(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.name, made.args, made.body = "_lambda_", only.args, body  # type: ignore[assignment]
    return ast.copy_location(made, only)


def _module_of(definition: ast.FunctionDef, free: tuple[str, ...]) -> ast.Module:
    """Return a module in which the function has its free variables around it."""
    outer = ast.parse(f"def _outer_({', '.join(free)}):\n    return 0").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body.insert(0, definition)
    ast.copy_location(outer, definition)
    return ast.fix_missing_locations(ast.Module([outer], []))


def _inner(code: CodeType, name: str) -> CodeType:
    (outer,) = [one for one in code.co_consts if isinstance(one, CodeType)]
    return next(one for one in outer.co_consts if isinstance(one, CodeType) and one.co_name == name)


def is_mangled(name: str) -> bool:
    """Whether Python changes a name in the body of a class."""
    return name.startswith("__") and not name.endswith("__")

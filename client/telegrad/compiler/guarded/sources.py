"""Source of functions: read as a syntax tree, and compiled from one that was changed. Knows nothing of watchers."""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import operator
import tokenize
from types import CodeType
from typing import Final


class UnknownFormError(Exception):
    """The source has a statement that is not rewritten."""


UNREADABLE: Final = (
    OSError, TypeError, SyntaxError, ValueError, IndexError, RecursionError, tokenize.TokenError, UnknownFormError,
)  # fmt: skip
"""What is raised where source is missing, is not that of the function, or has a form that is not rewritten."""


_FUTURE: Final = functools.reduce(
    operator.or_, [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]
)
"""The flags of statements such as ``from __future__ import annotations``, which the code of functions keeps."""
_MOST_FILES: Final = 64


def definition_of(code: CodeType) -> ast.FunctionDef:
    """Return the definition of a function, with the lines that it has in its file, and without decorators and defaults.

    Raises one of UNREADABLE where there is no source, or where that is not what runs: its file has been changed.
    """
    if code not in _codes_in("".join(inspect.findsource(code)[0]), code.co_filename, code.co_flags & _FUTURE):
        raise UnknownFormError
    lines, begin = inspect.getsourcelines(code)
    is_indented = lines[0][:1].isspace()  # its lines stay as they are, since strings may go over several
    tree = ast.parse(("if 1:\n" if is_indented else "") + "".join(lines))
    ast.increment_lineno(tree, begin - 1 - is_indented)
    definition = _definition_in(tree.body[0].body if is_indented else tree.body, code)  # type: ignore[attr-defined]
    definition.decorator_list = []
    for arguments in (definition.args.defaults, definition.args.kw_defaults):
        arguments[:] = [one and ast.Constant(None) for one in arguments]  # type: ignore[misc]
    return definition


def compiled(definition: ast.FunctionDef, free: tuple[str, ...], file: str) -> CodeType:
    """Return the code of a rewritten function that has these free variables around it."""
    return _inner(compile(_module_of(definition, free), file, "exec"), definition.name)


@functools.lru_cache(maxsize=_MOST_FILES)
def _codes_in(text: str, file: str, flags: int) -> frozenset[CodeType]:
    """Return the code of all functions and classes that a file defines."""
    made: set[CodeType] = set()
    waiting = [compile(text, file, "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)]
    while waiting:
        inner = [one for one in waiting.pop().co_consts if isinstance(one, CodeType)]
        made.update(inner)
        waiting += inner
    return frozenset(made)


def _definition_in(statements: list[ast.stmt], code: CodeType) -> ast.FunctionDef:
    """Return the definition of the function that has this code; of a lambda one that returns its expression."""
    first = statements[0]
    if isinstance(first, ast.FunctionDef) and first.name == code.co_name:
        return first
    lambdas = [node for one in statements for node in ast.walk(one) if isinstance(node, ast.Lambda)]
    around = [node for node in lambdas if _is_in(code, node.body)]
    if code.co_name != "<lambda>" or not around:
        raise UnknownFormError
    only = around[-1]  # the innermost, since outer expressions are walked first
    body = [ast.copy_location(ast.Return(only.body), only.body)]
    made = ast.parse("def f(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.name, made.args, made.body = "_lambda_", only.args, body  # type: ignore[assignment]
    return ast.copy_location(made, only)


def _is_in(code: CodeType, body: ast.expr) -> bool:
    """Whether all that a lambda does stands within an expression; what belongs to no part of it has no columns."""
    places = [(line, column) for line, _, column, end in code.co_positions() if line and column is not None and end]
    begin, end = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
    return all([begin <= place < end for place in places])


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


ABOUT_FRAMES: Final = frozenset(("locals", "vars", "dir", "eval", "exec", "globals", "breakpoint"))
"""Names of functions that look at who calls them."""


def is_mangled(name: str) -> bool:
    """Whether Python changes a name in the body of a class."""
    return name.startswith("__") and not name.endswith("__")

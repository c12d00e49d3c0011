"""Tables of who carries out an operation on tensors of a kind that the client composes, such as sparse ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from telegrad._ops.functions import function

Implementation = Callable[..., Any]
_I = TypeVar("_I", bound=Implementation)


class Table(dict[str, Implementation]):
    """Implementations of operations for one kind of tensor, by the public names of these."""

    def implements(self, *names: str) -> Callable[[_I], _I]:
        """Return a decorator that enters a function under each of these names."""

        def enter(implementation: _I) -> _I:
            self.update(dict.fromkeys(names, implementation))
            return implementation

        return enter


def run(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call an operation by its public name."""
    return function(name)(*args, **kwargs)

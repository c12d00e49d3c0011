"""Nodes that compute sizes in a graph: formulas of the sizes of what the graph is given."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from telegrad_protocol.exported.sizes import Floor, Formula, constant_of, symbol

Call = Callable[[Any, tuple[Any, ...]], Any]
"""Adds the call of a function to a graph."""


class SizeNodes:
    """The nodes of sizes in one graph, each made once. ``symbol_node`` adds that of a symbol, given its name."""

    def __init__(self, call: Call, symbol_node: Callable[[str], Any]) -> None:
        self._call, self._symbol_node = call, symbol_node
        self._known: dict[Formula, Any] = {}

    def node(self, size: Formula) -> Any:
        """Return the node that computes a size; it is added to the graph when it is first asked for."""
        if size not in self._known:
            terms = [self._term(*term) for term in size.sum]
            total = terms[0] if terms else 0
            for term in terms[1:]:
                total = self._call(operator.add, (total, term))
            self._known[size] = total if size.over == 1 else self._call(operator.floordiv, (total, size.over))
        return self._known[size]

    def _term(self, number: Any, *factors: Any) -> Any:
        product: Any = constant_of(number)
        for factor in factors:
            value = self._factor(factor)
            is_one = type(product) is int and product == 1
            product = value if is_one else self._call(operator.mul, (product, value))
        return product

    def _factor(self, factor: Any) -> Any:
        if not isinstance(factor, Floor):
            return self._symbol(str(factor))
        value = self._symbol(factor.name)
        if factor.plus:
            value = self._call(operator.add, (value, factor.plus))
        return self._call(operator.floordiv, (value, factor.over))

    def _symbol(self, name: str) -> Any:
        formula = symbol(name)
        if formula not in self._known:
            self._known[formula] = self._symbol_node(name)
        return self._known[formula]

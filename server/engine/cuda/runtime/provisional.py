"""Work that begins in a way that was found for other sizes, and is found for its own sizes once it comes again.

What a library proposes for sizes costs more to ask for than to run once, and sizes that change from step to step do not
come again. Knows no library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.engine.value import Backend

ASKED_AT: Final = 8
"""The call that is the first to be worth a question of its own."""


def _nothing() -> None:
    """In place of a question that was asked, and of what that refers to."""


class Provisional:
    """Calls ``run`` until ``ask`` is due, and what that returns from then on; ``run`` stays where it returns None.

    It is due at the call number ``asked_at``, and where the work is captured next; never while a device captures.
    """

    __slots__ = ("_ask", "_backend", "_is_settled", "_left", "_run")

    def __init__(
        self,
        backend: Backend,
        run: Callable[..., None],
        ask: Callable[[], Callable[..., None] | None],
        asked_at: int = ASKED_AT,
    ) -> None:
        self._backend, self._run, self._ask = backend, run, ask
        self._left = asked_at
        self._is_settled = False

    def __call__(self, *arguments: Any) -> None:
        if not self._is_settled and self._is_due():
            self.settle()
        self._run(*arguments)

    def settle(self) -> None:
        """Ask now, if that was not done."""
        self._run, self._is_settled = self._ask() or self._run, True
        self._ask = _nothing

    def _is_due(self) -> bool:
        if self._backend.is_capturing:
            return False
        self._left -= 1
        return self._left <= 0 or self._backend.settles

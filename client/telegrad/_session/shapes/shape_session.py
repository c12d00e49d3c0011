"""A session without a server: its tensors have shapes, types and devices, and no elements.

Calls run their contract's shape rule as in every session; the instruction that would compute goes nowhere. So tensors
on the ``meta`` device need no connection, and neither do other tensors of which only the shape is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import DEFAULT, Modes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import CPU, META, Device, Meta


class _NoSites:
    """Lines of the program, of which nobody has to be told."""

    def current(self, depth: int = 0) -> int:
        return 0


def _nothing(id: int) -> None:
    """Free nothing."""


def _no_elements(what: str) -> NotSupportedError:
    return NotSupportedError(f"{what}: the tensor has a shape and no elements, as all tensors on the meta device")


_ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "version": lambda id: 0,
    "storages": lambda ids: [(id, 0, 0) for id in ids],
    "synchronize": lambda *device: None,
    "computed": lambda ids: [True] * len(ids),
}


class ShapeSession(ClientSession):
    """A session whose tensors have no elements; ``refuse`` makes the error of what would need them.

    ``holds_gradients`` tells that the gradients of its tensors are objects of the program, which no number names.
    """

    def __init__(
        self, devices: tuple[Device, ...], refuse: Callable[[str], Exception] = _no_elements,
        holds_gradients: bool = False,
    ) -> None:  # fmt: skip
        self.new_id = count(1).__next__
        self.free = _nothing
        self.sites: Any = _NoSites()
        self.is_open = True
        self.was_left = False
        self.round_trips = self.operations = 0
        self.devices = list(devices)
        self.first_gpu = next((device for device in devices if device.type == "cuda"), None)
        self.default_device = devices[0]
        self.places = (*devices,)
        self._dead: Any = ()
        self._refuse = refuse
        self.holds_gradients = holds_gradients

    blocking = True
    """Nothing is on its way that could be waited for."""
    stand_in: Callable[[Any], Any] | None = None
    """Returns what stands in this session for a tensor that has elements; by default a new tensor of its shape."""

    def queue(self, instruction: Any, modes: Modes) -> None:
        """Drop an instruction."""

    def submit(self, instruction: Any, modes: Modes = DEFAULT) -> None:
        """Drop an instruction."""

    def call(self, op: int, site: int, outs: tuple[int, ...], args: list[Any], modes: Modes) -> None:
        """Drop a call."""

    def upload(self, meta: Meta, data: memoryview, site: int) -> int:
        """Return the number of a tensor, whose elements are dropped."""
        return self.new_id()

    def flush(self) -> None:
        """Do nothing."""

    def flush_quietly(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def synchronize(self, device: str = "") -> None:
        """Do nothing."""

    def query(self, what: str, *args: Any) -> Any:
        """Answer what can be said of tensors without elements, and refuse everything else."""
        known = _ANSWERS.get(what)
        if known is None:
            raise self._refuse(what)
        return known(*args)

    def read(self, id: int, nbytes: int = 0) -> tuple[DType, tuple[int, ...], memoryview]:
        """Refuse: there are no elements."""
        raise self._refuse("read")

    def describe(self, ids: tuple[int, ...], devices: tuple[Device, ...]) -> list[tuple[Meta, bool]]:
        """Refuse: a shape that depends on elements is not known."""
        raise self._refuse("describe")

    def request(self, make: Callable[[int], Any]) -> Any:
        """Refuse: there is nobody to ask."""
        raise self._refuse(type(make(0)).__name__)

    def _require_open(self) -> None:
        """Do nothing: it never ends."""


meta_session: Final = ShapeSession((META,))
"""The session of all tensors on the ``meta`` device."""


def device_session(refuse: Callable[[str], Exception]) -> ShapeSession:
    """Return a session whose tensors are on the devices that programs name, without elements."""
    return ShapeSession((CPU, META, *[Device("cuda", index) for index in range(16)]), refuse)

"""``Generator``: a stream of random numbers of a program's own, beside the one of the session for each device."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, as_device
from telegrad._session.grad_mode import no_grad
from telegrad._session.parts import capturing
from telegrad._session.session import ClientSession
from telegrad_protocol.dtypes import uint8
from telegrad_protocol.errors import ArgumentError, DTypeError
from telegrad_protocol.meta import CPU, Meta

from .tensor import Tensor

_DEFAULT_SEED = 67280421310721
_STATE_BYTES = 16


class Generator:
    """A stream of random numbers that begins anew with ``manual_seed``; functions that draw take ``generator=``.

    Its state is a tensor in the session that first draws from it; in another session it begins again with its seed. A
    generator serves tensors on every device, and gives the same numbers on all; ``device`` is kept for PyTorch's sake.
    """

    is_default = False
    """Whether this stands for the generator that is drawn from where none is given."""
    __slots__ = ("__weakref__", "_initial_seed", "_is_captured", "_state", "device")

    def __init__(self, device: DeviceLike = None) -> None:
        self.device = CPU if device is None else as_device(device).place
        self._initial_seed = _DEFAULT_SEED
        self._state: Tensor | None = None
        self._is_captured = False
        """Whether a CUDA graph draws from the state, which is written in place from then on."""

    def manual_seed(self, seed: int) -> Generator:
        """Begin the stream of a seed of 64 bits; return the generator."""
        value = int(seed)
        if not -(2**63) <= value < 2**64:
            raise ArgumentError(f"manual_seed: {seed} does not fit into 64 bits")
        self._initial_seed = value % 2**64
        self._begin_at(self._uploaded(current_session()) if self._is_captured else None)
        return self

    def seed(self) -> int:
        """Begin the stream of a random seed, and return the seed."""
        self.manual_seed(int.from_bytes(os.urandom(8)))
        return self._initial_seed

    def initial_seed(self) -> int:
        """Return the seed that the stream began with."""
        return self._initial_seed

    def get_state(self) -> Tensor:
        """Return the state as bytes in a tensor on the CPU: the seed, and how far the stream was read."""
        return self.state_in(current_session()).clone()

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on where ``get_state`` was called; waits for the seed that the state begins with."""
        if new_state.dtype is not uint8 or new_state.numel() != _STATE_BYTES:
            raise DTypeError(f"set_state: expected the uint8 tensor that get_state gave, not {new_state._meta}")
        state = new_state.detach().to("cpu").reshape(_STATE_BYTES).clone()
        self._initial_seed = int.from_bytes(bytes(state.tolist()[:8]), "little")
        self._begin_at(state)
        return self

    def _begin_at(self, state: Tensor | None) -> None:
        """Have another state, which is written to the memory of the one that a graph draws from."""
        if self._is_captured and state is not None and state._session is self._state._session:  # type: ignore[union-attr]
            with no_grad():
                self._state.copy_(state)  # type: ignore[union-attr]
        else:
            self._state, self._is_captured = state, False

    def graphsafe_get_state(self) -> Generator:
        """Return a generator that shares this one's state: what either draws is drawn from both."""
        shared = Generator(self.device)
        shared.graphsafe_set_state(self)
        return shared

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Share the state of another generator from here on; graphs that drew from this one go on with theirs."""
        self._state, self._initial_seed = state.state_in(current_session()), state._initial_seed
        self._is_captured = state._is_captured = True
        return self

    def clone_state(self) -> Generator:
        """Return another generator that goes on where this one is."""
        return Generator(self.device).set_state(self.get_state())

    def state_in(self, session: ClientSession) -> Tensor:
        """Return the tensor that holds the state in a session."""
        state = self._state
        if state is None or state._session is not session:
            state, self._is_captured = self._uploaded(session), False
            self._state = state
        if capturing.active.graph is not None:
            self._is_captured = True
        return state

    def _uploaded(self, session: ClientSession) -> Tensor:
        """Return the state in which the stream of the seed begins."""
        data = np.array([self._initial_seed, 0], "<u8").tobytes()
        meta = Meta.of((_STATE_BYTES,), uint8, CPU)
        return Tensor(session, session.upload(meta, memoryview(data), session.sites.current()), meta)

    def __repr__(self) -> str:
        return f"<telegrad.Generator on {self.device} with seed {self._initial_seed}>"

    def __reduce__(self) -> Any:
        return _restored, (str(self.device), self._initial_seed, self.get_state().tolist())


def _restored(device: str, seed: int, state: list[int]) -> Generator:
    """Return the generator that was pickled with this state."""
    generator = Generator(device).manual_seed(seed)
    session = current_session()
    meta = Meta.of((_STATE_BYTES,), uint8, CPU)
    generator._state = Tensor(session, session.upload(meta, memoryview(bytes(state)), session.sites.current()), meta)
    return generator

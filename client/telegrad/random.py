"""Random state. Every session has one generator per device, on the server; CPU and GPU draw the same numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from telegrad_protocol.dtypes import uint8
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.messages import RandomState, Seed

from ._functions.creation import tensor
from ._session.current import current_session
from ._session.devices import DeviceLike, as_device, default_device, require_device
from ._session.parts.capturing import refuse as refuse_in_capture
from ._session.thread_modes import thread
from ._tensor.generator import Generator
from ._tensor.tensor import Tensor


def manual_seed(seed: int) -> Generator:
    """Seed the generators of all devices, and return that of the CPU."""
    seed_device("", seed)
    return default_generator


def seed_device(device: str, seed: int) -> None:
    """Seed the generator of one device; of all where ``device`` is empty."""
    value = int(seed)
    if not -(2**63) <= value < 2**64:
        raise ArgumentError(f"manual_seed: {seed} does not fit into 64 bits")
    refuse_in_capture("manual_seed")
    current_session().submit(Seed(device, value % 2**64), thread.modes)


def seed() -> int:
    """Seed all generators with a random number, and return it."""
    return int(current_session().query("seed"))


def thread_safe_generator() -> Generator | None:
    """Return None, for which functions draw from the session's generator: threads share it in turn."""
    return None


def drawn_seed() -> int:
    """Return a random number of 63 bits to seed generators with, drawn on this machine."""
    return int.from_bytes(os.urandom(8)) >> 1


def _device(device: DeviceLike) -> str:
    session = current_session()
    return (default_device(session) if device is None else require_device(as_device(device), session)).name


def initial_seed(device: DeviceLike = None) -> int:
    """Return the number that the device's generator was last seeded with."""
    return int(current_session().query("initial_seed", _device(device)))


def get_rng_state(device: DeviceLike = None) -> Tensor:
    """Return the state of a device's generator, as bytes in a tensor."""
    refuse_in_capture("get_rng_state")
    state = current_session().query("get_rng_state", _device(device))
    return tensor(list(state), dtype=uint8, device="cpu")


def set_rng_state(new_state: Tensor, device: DeviceLike = None) -> None:
    """Put a device's generator into a state that ``get_rng_state`` gave."""
    if new_state.dtype is not uint8:
        raise ArgumentTypeError(
            f"set_rng_state: RNG state must be the uint8 tensor that get_rng_state gave, not {new_state._meta}"
        )
    refuse_in_capture("set_rng_state")
    current_session().query("set_rng_state", _device(device), bytes(new_state.tolist()))


@contextmanager
def fork_rng(
    devices: Iterable[DeviceLike] | None = None, enabled: bool = True, _caller: str = "fork_rng",
    _devices_kw: str = "devices", device_type: str | None = None,
) -> Iterator[None]:  # fmt: skip
    """Draw as usual within the block, and go on after it as if nothing had been drawn.

    This holds for the generators of the CPU and of ``devices``, by default all GPUs. Without ``devices`` nothing waits.
    """
    session = current_session()
    modes = thread.modes
    if not enabled:
        yield
    elif devices is None:
        number = session.new_id()
        session.submit(RandomState(number, False), modes)
        try:
            yield
        finally:
            session.submit(RandomState(number, True), modes)
            session.free(number)
    else:
        names = ["cpu", *[require_device(as_device(device), session, _caller).name for device in devices]]
        states = [(name, session.query("get_rng_state", name)) for name in names]
        try:
            yield
        finally:
            for name, state in states:
                session.query("set_rng_state", name, state)


class DefaultGenerator(Generator):
    """The generator of a device that functions draw from where they are given none."""

    __slots__ = ()
    is_default = True

    def manual_seed(self, seed: int) -> Generator:
        seed_device(self.device.name, seed)
        return self

    def seed(self) -> int:
        drawn = drawn_seed()
        seed_device(self.device.name, drawn)
        return drawn

    def initial_seed(self) -> int:
        return initial_seed(self.device)

    def get_state(self) -> Tensor:
        return get_rng_state(self.device)

    def set_state(self, new_state: Tensor) -> Generator:
        set_rng_state(new_state, self.device)
        return self

    def graphsafe_get_state(self) -> Generator:
        """Return a generator that stands where this one is, whose state is the session's."""
        return self.clone_state()

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Go on where another generator is."""
        return self.set_state(state.get_state())


default_generator = DefaultGenerator("cpu")

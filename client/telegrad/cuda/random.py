"""Random state of GPUs, under ``torch.cuda.random``'s names; a session has one generator per device, on the server."""

from __future__ import annotations

from collections.abc import Iterable

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, device_name
from telegrad._tensor.tensor import Tensor
from telegrad.random import DefaultGenerator, drawn_seed, seed_device
from telegrad.random import get_rng_state as _get_rng_state
from telegrad.random import initial_seed as _initial_seed
from telegrad.random import set_rng_state as _set_rng_state
from telegrad_protocol.meta import Device

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def _gpus() -> list[Device]:
    return [device for device in current_session().devices if device.type == "cuda"]


def default_generators() -> tuple[DefaultGenerator, ...]:
    """Return the generators that functions draw from on the GPUs, in the order of their indices."""
    return tuple(DefaultGenerator(gpu.name) for gpu in _gpus())


def manual_seed(seed: int) -> None:
    """Seed the generator of the current GPU."""
    seed_device(device_name(None), seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all GPUs with the same number."""
    for gpu in _gpus():
        seed_device(gpu.name, seed)


def seed() -> None:
    """Seed the generator of the current GPU with a random number."""
    manual_seed(drawn_seed())


def seed_all() -> None:
    """Seed the generators of all GPUs with one random number."""
    manual_seed_all(drawn_seed())


def initial_seed() -> int:
    """Return the number that the generator of the current GPU was last seeded with."""
    return _initial_seed(device_name(None))


def get_rng_state(device: DeviceLike = "cuda") -> Tensor:
    """Return the state of a GPU's generator, as bytes in a tensor on the CPU."""
    return _get_rng_state(device)


def get_rng_state_all() -> list[Tensor]:
    """Return the states of the generators of all GPUs, in the order of their indices."""
    return [_get_rng_state(gpu) for gpu in _gpus()]


def set_rng_state(new_state: Tensor, device: DeviceLike = "cuda") -> None:
    """Put a GPU's generator into a state that ``get_rng_state`` gave."""
    _set_rng_state(new_state, device)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Put the generators of the first GPUs into these states, one each."""
    for index, state in enumerate(new_states):
        _set_rng_state(state, index)

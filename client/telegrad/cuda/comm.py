"""Copies between the GPUs of a session, and sums over them, under the names of ``torch.cuda.comm``.

All of it is made of operations that gradients flow through, so ``nn.parallel`` is made of this. Nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike, gpu_of
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DeviceError, ShapeError
from telegrad_protocol.meta import CPU, Device

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _gpus(name: str, devices: Iterable[DeviceLike]) -> list[Device]:
    chosen = [gpu_of(name, device) for device in devices]
    if not chosen:
        raise ArgumentError(f"{name}: expected at least one device")
    return chosen


def _destination(name: str, destination: DeviceLike) -> Device:
    """Return where results go: the current GPU for None, the CPU for a negative index or the CPU's name."""
    if isinstance(destination, int) and not isinstance(destination, bool) and destination < 0:
        return CPU
    if isinstance(destination, (str, Device)) and Device(destination).type == "cpu":
        return CPU
    return gpu_of(name, destination)


def _check_choice(name: str, devices: Any, out: Any) -> None:
    if (devices is None) == (out is None):
        raise ArgumentError(
            f"{name}: Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )


def broadcast(
    tensor: Tensor, devices: Iterable[DeviceLike] | None = None, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """Copy a tensor to GPUs, or into the tensors of ``out``; on its own device it is the tensor itself."""
    _check_choice("broadcast", devices, out)
    if out is None:
        return tuple([tensor.to(gpu) for gpu in _gpus("broadcast", devices or ())])
    for number, target in enumerate(out):
        if not target.is_cuda or target.shape != tensor.shape:
            raise ShapeError(
                f"broadcast: expected GPU tensors of the shape of {tensor._meta} in out, but tensor {number} is "
                f"{target._meta} on {target.device}"
            )
        if target is not tensor:
            target.copy_(tensor)
    return tuple(out)


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Iterable[DeviceLike], buffer_size: int = 10485760
) -> tuple[tuple[Tensor, ...], ...]:
    """Copy several tensors to GPUs: a tuple of copies per GPU. ``buffer_size`` is there for PyTorch's callers."""
    return tuple([tuple([tensor.to(gpu) for tensor in tensors]) for gpu in _gpus("broadcast_coalesced", devices)])


def reduce_add(inputs: Sequence[Tensor], destination: DeviceLike = None) -> Tensor:
    """Add tensors of several GPUs on one of them, by default the current one."""
    if not inputs:
        raise ArgumentError("reduce_add: expected at least one tensor")
    home = gpu_of("reduce_add", destination)
    for number, tensor in enumerate(inputs):
        if not tensor.is_cuda:
            raise DeviceError(f"reduce_add: expects all inputs to be on GPUs, but input {number} is on {tensor.device}")
        if tensor.shape != inputs[0].shape:
            got, expected = list(tensor.shape), list(inputs[0].shape)
            raise ArgumentError(f"reduce_add: input {number} has invalid size: got {got}, but expected {expected}")
    roots = [number for number, tensor in enumerate(inputs) if tensor.device is home]
    if not roots:
        raise DeviceError("reduce_add: expects destination to be on the same GPU with one of the tensors")
    result = inputs[roots[-1]]
    for number, tensor in enumerate(inputs):
        if number != roots[-1]:
            result = result + tensor.to(home)
    return result


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: DeviceLike = None, buffer_size: int = 10485760
) -> tuple[Tensor, ...]:
    """Add lists of tensors, one list per GPU: ``reduce_add`` for each place in the lists."""
    if any(len(tensors) != len(inputs[0]) for tensors in inputs):
        raise ArgumentError(f"reduce_add_coalesced: expected lists of one length, got {list(map(len, inputs))}")
    return tuple([reduce_add(row, destination) for row in zip(*inputs, strict=True)])


def scatter(
    tensor: Tensor, devices: Iterable[DeviceLike] | None = None, chunk_sizes: Sequence[int] | None = None,
    dim: int = 0, streams: Any = None, *, out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Split a tensor along ``dim`` and copy the parts to GPUs, or into the tensors of ``out``.

    The parts are as equal as can be, or of ``chunk_sizes``; there may be fewer than GPUs. Copies are made on the
    current streams of the GPUs, in order: ``streams`` is there for PyTorch's callers.
    """
    _check_choice("scatter", devices, out)
    if not isinstance(tensor, Tensor):
        raise ArgumentTypeError(f"scatter: expected a tensor, not {type(tensor).__name__}")
    if out is not None:
        if chunk_sizes is not None:
            raise ArgumentError(f"scatter: 'chunk_sizes' must not be specified when 'out' is, but got {chunk_sizes}")
        return _scatter_into(tensor, out, dim)
    gpus = _gpus("scatter", devices or ())
    if chunk_sizes is None:
        parts = tensor.chunk(len(gpus), dim)
    elif len(chunk_sizes) != len(gpus):
        raise ArgumentError(
            "scatter: Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(gpus)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    else:
        parts = tensor.split(list(chunk_sizes), dim)
    return tuple([part.to(gpu) for part, gpu in zip(parts, gpus, strict=False)])


def _scatter_into(tensor: Tensor, out: Sequence[Tensor], dim: int) -> tuple[Tensor, ...]:
    for number, target in enumerate(out):
        if not target.is_cuda:
            raise DeviceError(f"scatter: expected GPU tensors in out, but tensor {number} is on {target.device}")
    sizes = [target.shape[dim] for target in out]
    if sum(sizes) != tensor.shape[dim]:
        raise ShapeError(
            f"scatter: the tensors of out have {sum(sizes)} elements along dim {dim}, not {tensor.shape[dim]}"
        )
    for target, part in zip(out, tensor.split(sizes, dim), strict=True):
        target.copy_(part)
    return tuple(out)


def gather(
    tensors: Iterable[Tensor], dim: int = 0, destination: DeviceLike = None, *, out: Tensor | None = None
) -> Tensor:
    """Join tensors of GPUs along ``dim`` on one device, by default the current GPU, or in ``out``.

    ``destination`` may be the CPU, by its name or as -1.
    """
    listed = list(tensors)
    for number, tensor in enumerate(listed):
        if not tensor.is_cuda:
            raise DeviceError(
                f"gather: Expected all input tensors to be CUDA tensors, but tensor at index {number} has device "
                f"'{tensor.device}'"
            )
    if out is not None:
        if destination is not None:
            raise ArgumentError(f"gather: 'destination' must not be specified when 'out' is, but got {destination}")
        return function("cat")([tensor.to(out.device) for tensor in listed], dim, out=out)  # type: ignore[no-any-return]
    home = _destination("gather", destination)
    return function("cat")([tensor.to(home) for tensor in listed], dim)  # type: ignore[no-any-return]

"""Instructions about kernels that the client brings: loading their code, and launching them.

Modules and kernels have numbers as tensors do, and are freed as these are. A launch is not among what an operation
passes: autograd does not see it, and what the kernel writes to is modified as ``data_ptr()`` lets others modify it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from server.engine.user_kernels.interface import Sizes
from server.engine.user_kernels.kernel import LaunchKey, PreparedLaunch, UserKernel
from server.engine.user_kernels.modules import UserModule
from server.engine.value import Value
from server.session.requests import answers
from server.session.state import Absent, SessionState
from telegrad_protocol import messages, queries
from telegrad_protocol.errors import ArgumentTypeError, NotAllowedError, NotComputedError, ProtocolError, UnknownIdError
from telegrad_protocol.kernel_messages import TensorMap


def load_module(state: SessionState, message: messages.LoadModule) -> None:
    """Handle the instruction: compile code where it is text, and load it."""
    if not state.allows_kernels:
        raise NotAllowedError(
            "load module: this session runs no kernels of its own; open one that does with connect(kernels=True), or "
            "set TELEGRAD_KERNELS=1, on a server whose operator allows it (TELEGRAD_ALLOW_KERNELS)"
        )
    backend = state.backend(message.device)
    with backend.as_current():
        module = UserModule(state.modules, backend, message)
    state.values[message.id] = module  # type: ignore[assignment]


def define_kernel(state: SessionState, message: messages.DefineKernel) -> None:
    """Handle the instruction: find a module's function."""
    module = _own(state, message.module, UserModule)
    with module.backend.as_current():
        kernel = UserKernel(module, message.name, message.written, message.read_only)
    state.values[message.id] = kernel  # type: ignore[assignment]


def set_attribute(state: SessionState, message: messages.SetKernelAttribute) -> None:
    """Handle the instruction."""
    kernel = _own(state, message.kernel, UserKernel)
    with kernel.backend.as_current():
        kernel.set_attribute(message.name, message.value)


def launch_kernel(state: SessionState, message: messages.LaunchKernel) -> None:
    """Handle the instruction: launch on the stream that the session's operations are launched on."""
    kernel: Any = state.values.get(message.kernel)
    if kernel.__class__ is not UserKernel:
        kernel = _own(state, message.kernel, UserKernel)
    key = message.forms, message.block, message.shared, message.cluster, message.flags
    launch: PreparedLaunch = kernel.prepared.get(key) or kernel.prepare(key)
    args, values = [*message.args], state.values
    if len(args) != launch.count:
        raise ArgumentTypeError(f"{kernel.name}: {len(args)} values for {launch.count} arguments")
    try:
        for place in launch.tensors:
            value: Any = values.get(args[place])
            args[place] = value if value.__class__ is Value else state.value(args[place])
    except TypeError:
        raise ProtocolError(f"launch kernel: no number of a tensor: {args[place]!r:.40}") from None
    for place in launch.maps:
        args[place] = _tensor_map(state, args[place])
    state.modules.note_launch(kernel.name, message.site)
    if state.capture is None:
        launch.launch(message.grid, args)
    else:
        run = partial(_launch_again, kernel, key, message.grid)
        state.capture.execute(kernel.name, kernel.backend, run, tuple(args))
    state.operations += 1


def _launch_again(kernel: UserKernel, key: LaunchKey, grid: Sizes, args: tuple[Any, ...]) -> None:
    """Launch a kernel that a graph has captured, on the stream that is current now."""
    (kernel.prepared.get(key) or kernel.prepare(key)).launch(grid, list(args))


def _tensor_map(state: SessionState, arg: Any) -> tuple[Value, TensorMap]:
    """Return a tensor, and how a map of it is to be made, which is the same for all tensors that are laid out alike."""
    try:
        tensor_map = msgspec.convert(arg, TensorMap)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"launch kernel: malformed map of a tensor: {error}") from None
    return state.value(tensor_map.tensor), msgspec.structs.replace(tensor_map, tensor=0)


def _own(state: SessionState, number: int, kind: type[Any]) -> Any:
    """Return a module or kernel of the session."""
    owned: Any = state.values.get(number)
    if isinstance(owned, kind):
        return owned
    if isinstance(owned, Absent):
        raise NotComputedError(f"this kernel was never loaded: {owned.reason}")
    raise (UnknownIdError if owned is None else ProtocolError)(f"number {number} is no {kind.__name__} of the session")


@answers(queries.KernelAttributes)
def _attributes(state: SessionState, query: queries.KernelAttributes) -> dict[str, int]:
    kernel = _own(state, query.kernel, UserKernel)
    with kernel.backend.as_current():
        attributes: dict[str, int] = kernel.attributes()
    return attributes

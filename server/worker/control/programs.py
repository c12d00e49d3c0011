"""Loads exported programs and runs them, on behalf of HTTP."""

from __future__ import annotations

from typing import Final

from server.engine.value import Value
from server.ipc.program_requests import CloseProgram, GivenInput, LoadProgram, MadeOutput, OpenProgram, RunProgram
from server.session.exported.loading import ProgramLoading
from server.session.exported.program import LoadedProgram
from server.session.handles import TensorCopy
from server.session.requests import answers
from server.session.state import SessionState
from server.session.uploads import TensorUpload, new_value
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import DTypeError, NotComputedError, ShapeError
from telegrad_protocol.exported.description import Input
from telegrad_protocol.messages import CHUNK_BYTES
from telegrad_protocol.meta import Device

_STEP_BYTES: Final = 8192
"""What the host holds for a step of a program, which is kept for several sizes."""


@answers(OpenProgram)
def open_program(state: SessionState, request: OpenProgram) -> int:
    """Open the file."""
    loading = ProgramLoading(request.path, state.backends, state.default_device)
    number = state.handles.add_program(loading)
    state.context.set_inference(True)
    state.host_memory.note(_STEP_BYTES * loading.steps)
    return number


@answers(LoadProgram)
def load_program(state: SessionState, request: LoadProgram) -> bool:
    """Read a part of it."""
    program = state.handles.program(request.program)
    if isinstance(program, LoadedProgram):
        return True
    loaded = program.read_part()
    if loaded is not None:
        state.handles.set_loaded(request.program, loaded)
    return loaded is not None


@answers(CloseProgram)
def close_program(state: SessionState, request: CloseProgram) -> None:
    """Forget it."""
    state.host_memory.forget(_STEP_BYTES * state.handles.remove_program(request.program))


@answers(RunProgram)
def run_program(state: SessionState, request: RunProgram) -> list[MadeOutput]:
    """Run it; what the devices find wrong with indices is told, too."""
    program = state.handles.program(request.program)
    if not isinstance(program, LoadedProgram):
        raise NotComputedError(f"program {request.program} is not loaded yet")
    described = program.description.inputs
    if len(request.inputs) != len(described):
        raise ShapeError(f"the program takes {len(described)} inputs, not {len(request.inputs)}")
    given = zip(described, program.devices, request.inputs, strict=True)
    outputs = program.run([_value(state, *one) for one in given])
    state.operations += program.steps
    state.verify()
    return [_made(state, value) for value in outputs]


def _value(state: SessionState, described: Input, device: Device, given: GivenInput) -> Value:
    if given.tensor is not None:
        value = state.value(given.tensor)
        del state.values[given.tensor]
        if value.dtype is not BY_NAME[described.dtype]:
            raise DTypeError(f"input {described.name!r}: expected {described.dtype}, got {value.meta}")
        return value
    upload = TensorUpload(0, new_value(state.backends[device], given.shape, BY_NAME[described.dtype]))
    upload.write(0, given.data)
    return upload.finish()


def _made(state: SessionState, value: Value) -> MadeOutput:
    copy = TensorCopy(value)
    if copy.nbytes <= CHUNK_BYTES:
        data = copy.piece(0, copy.nbytes)
        if data is not None:
            return MadeOutput(value.shape, copy.nbytes, bytes(data))
    return MadeOutput(value.shape, copy.nbytes, b"", state.handles.add_copy(copy))

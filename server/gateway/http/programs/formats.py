"""Inputs and outputs of programs in the body of a request: JSON, npy for a single tensor, safetensors for several."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, Final

import ml_dtypes
import msgspec
import numpy as np

from server.gateway.door.bodies import MAX_VALUES, VALUE_BYTES
from server.gateway.http import tensor_files
from server.gateway.http.json_values import decode_values, encode_values
from server.gateway.http.tensor_files import JSON, NPY, SAFETENSORS
from server.gateway.problems import Refused
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError
from telegrad_protocol.exported import container
from telegrad_protocol.exported.description import Input, Output, ProgramDescription

from .batches import Elements

_FORMATS: Final = (JSON, NPY, SAFETENSORS)
_JSON_TYPES: Final = {
    **{name: np.dtype(name) for name in BY_NAME if name not in ("bfloat16", "complex32", "complex64", "complex128")},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip
"""Types whose elements are numbers of JSON."""


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    inputs: dict[str, Any]


async def decode(program: ProgramDescription, kind: str, body: bytes) -> list[Elements]:
    """Return the inputs that a body has, in the program's order. Raises what is wrong with it, by input."""
    if kind == JSON:
        return _of_json(program.inputs, body)
    if kind == NPY:
        return [await _of_npy(program.inputs, body)]
    if kind == SAFETENSORS:
        return _of_safetensors(program.inputs, body)
    raise Refused(415, NotSupportedError(f"programs: cannot read {kind!r:.60}, expected {', '.join(_FORMATS)}"))


def _of_json(inputs: Sequence[Input], body: bytes) -> list[Elements]:
    try:
        given = msgspec.json.decode(body, type=_Body).inputs
    except (msgspec.DecodeError, RecursionError) as error:
        raise ArgumentError(f'the body must be JSON such as {{"inputs": {{"x": [[1.0]]}}}}: {error}') from None
    _check_names(inputs, list(given))
    return [_elements(described, given[described.name]) for described in inputs]


def _check_names(inputs: Sequence[Input], given: Sequence[str]) -> None:
    wanted = [item.name for item in inputs]
    missing, unknown = [n for n in wanted if n not in given], [n for n in given if n not in wanted]
    if missing or unknown:
        problem = f"the input {missing[0]!r} is missing" if missing else f"there is no input {unknown[0]!r:.60}"
        raise ArgumentError(f"inputs: {problem}; the program takes {', '.join(wanted) or 'none'}")


def _elements(described: Input, values: Any) -> Elements:
    kind = _JSON_TYPES.get(described.dtype)
    try:
        array = np.array(values)
    except ValueError:
        raise ArgumentError(f"input {described.name!r}: the lists are not nested evenly") from None
    if kind is not None and kind.kind in "iu" and array.dtype.kind == "f" and not (array == np.floor(array)).all():
        raise ArgumentError(f"input {described.name!r}: {described.dtype} takes integers, not fractions")
    if kind is None or array.dtype.kind not in "bifu" or not _fits(array, kind):
        try:
            data, _, shape = encode_values(values, described.dtype)  # it reads NaN and complex numbers, too
        except (ArgumentError, DTypeError) as error:
            raise type(error)(f"input {described.name!r}: {error.message.removeprefix('tensor: ')}") from None
        return Elements(shape, data)
    with np.errstate(over="ignore"):
        return Elements(array.shape, array.astype(kind).tobytes())


def _fits(array: np.ndarray[Any, Any], kind: np.dtype[Any]) -> bool:
    """Whether converting elements changes no value but by rounding."""
    if kind.kind in "iu" and array.size:
        limits = np.iinfo(kind)
        return array.dtype.kind != "f" and limits.min <= int(array.min()) and int(array.max()) <= limits.max
    return kind.kind != "b" or array.dtype.kind == "b" or not array.size


class _Source:
    def __init__(self, body: bytes) -> None:
        self._file = io.BytesIO(body)

    async def read(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        data = self._file.read(size)
        if len(data) != size:
            raise ArgumentError(f"the body ends {size - len(data)} bytes too early")
        return data

    def rest(self) -> bytes:
        return self._file.read()


async def _of_npy(inputs: Sequence[Input], body: bytes) -> Elements:
    if len(inputs) != 1:
        raise ArgumentError(f"npy holds one tensor, and the program takes {len(inputs)}; send JSON or safetensors")
    source = _Source(body)
    header = await tensor_files.read_npy_header(source)
    _check_type(inputs[0], header.dtype)
    data = source.rest()
    if len(data) != header.nbytes:
        raise ArgumentError(f"npy: the header announces {header.nbytes} bytes of elements, and {len(data)} follow")
    if header.is_transposed:
        item = BY_NAME[header.dtype].itemsize
        array = np.frombuffer(data, np.dtype((np.void, item))).reshape(header.shape)
        return Elements(header.shape[::-1], np.ascontiguousarray(array.T).tobytes())
    return Elements(header.shape, data)


def _of_safetensors(inputs: Sequence[Input], body: bytes) -> list[Elements]:
    contents = container.read_header(io.BytesIO(body), len(body))
    _check_names(inputs, list(contents.entries))
    view = memoryview(body)[contents.start :]
    made = []
    for described in inputs:
        entry = contents.entries[described.name]
        _check_type(described, entry.dtype)
        made.append(Elements(entry.shape, view[entry.begin : entry.end]))
    return made


def _check_type(described: Input, dtype: str) -> None:
    if dtype != described.dtype:
        raise DTypeError(f"input {described.name!r}: expected {described}, got {dtype}")


def chosen(accept: str, given: str, outputs: Sequence[Output]) -> str:
    """Return the format of an answer: what ``Accept`` wants most, by default that of the request where it can be."""
    can_npy = len(outputs) == 1 and outputs[0].dtype != "bfloat16"
    own = given if given != NPY or can_npy else SAFETENSORS
    offers = {JSON: JSON, SAFETENSORS: SAFETENSORS, "*/*": own, "application/*": own, **({NPY: NPY} if can_npy else {})}
    for wanted in tensor_files.ranked(accept):
        if wanted in offers:
            return offers[wanted]
    raise Refused(
        406, NotSupportedError(f"programs: cannot write {accept!r:.60}, only {', '.join(sorted({*offers.values()}))}")
    )


def bytes_held(kind: str, made: Sequence[Elements]) -> int:
    """Return what an answer makes the gateway hold: the elements twice, and what they are as values of JSON."""
    values = sum([math.prod(one.shape) for one in made]) if kind == JSON else 0
    return 2 * sum([len(one.data) for one in made]) + VALUE_BYTES * values


def encode(kind: str, outputs: Sequence[Output], made: Sequence[Elements]) -> bytes:
    """Return outputs as the body of an answer."""
    if kind == NPY:
        return tensor_files.npy_header(outputs[0].dtype, made[0].shape) + made[0].data
    if kind == SAFETENSORS:
        tensors = [(output.name, output.dtype, one.shape) for output, one in zip(outputs, made, strict=True)]
        return b"".join([container.header({}, tensors), *[one.data for one in made]])
    if sum([math.prod(one.shape) for one in made]) > MAX_VALUES:
        raise ArgumentError(
            f"the outputs have more than {MAX_VALUES} elements, which is too much for JSON; accept {SAFETENSORS}"
        )
    values = {
        output.name: decode_values(bytes(one.data), output.dtype, one.shape)
        for output, one in zip(outputs, made, strict=True)
    }
    return msgspec.json.encode({"outputs": values})

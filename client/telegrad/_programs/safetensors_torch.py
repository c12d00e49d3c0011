"""The package ``safetensors`` where torch is telegrad: elements are read from files and tensors, not from memory.

Its own ``safe_open(framework="pt")`` and ``safetensors.torch`` reach into the memory of PyTorch's tensors.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from telegrad._functions.process_settings import frombuffer
from telegrad._ops.functions import function
from telegrad._session.devices import as_device
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import named, uint8

if TYPE_CHECKING:
    import numpy as np

NAMES: Final = ("safetensors", "safetensors.torch")
_DTYPES: Final = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip


def spec_of(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return where a module of the package comes from, with a loader that adapts it; None without the package."""
    spec = PathFinder.find_spec(name, path)
    if spec is not None and spec.origin is not None:
        spec.loader = _Loader(name, spec.origin)
    return spec


def adapt_loaded() -> None:
    """Adapt the package where it was imported already: telegrad uses it itself."""
    package = sys.modules.get("safetensors")
    if package is not None:
        _adapt(package)


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _adapt(module)


def _adapt(module: ModuleType) -> None:
    if module.__name__ == "safetensors.torch":
        vars(module).update(_to_ndarray=_elements_of, _tobytes=lambda tensor, name: _elements_of(tensor)[0].tobytes())
    own = module.safe_open

    def safe_open(filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
        return (
            TensorFile(filename, device)
            if framework in ("pt", "torch")
            else own(filename, framework, device, **options)
        )

    if own.__module__ != __name__:
        vars(module)["safe_open"] = safe_open


def _elements_of(tensor: Tensor) -> tuple[np.ndarray[Any, Any], Tensor]:
    """Return a tensor's bytes in row-major order, and the tensor."""
    flat: Any = tensor.detach().cpu().reshape(-1)
    return flat.view(uint8).numpy(), tensor


class TensorFile:
    """An open file of tensors, as ``safe_open`` returns it for PyTorch: each tensor is read when it is asked for.

    Several threads may ask at once: the file has one position, which belongs to one of them at a time.
    """

    def __init__(self, filename: Any, device: Any = "cpu") -> None:
        self._device = as_device(device)
        self._position = threading.Lock()
        self._file = open(filename, "rb")  # noqa: SIM115 - the block that this object is entered by closes it
        length = int.from_bytes(self._file.read(8), "little")
        self._entries: dict[str, Any] = json.loads(self._file.read(length))
        self._metadata: dict[str, str] | None = self._entries.pop("__metadata__", None)
        self._begin = 8 + length

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        """Return the names of the tensors."""
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        """Return the names of the tensors in the order of the file."""
        return sorted(self._entries, key=lambda name: self._entries[name]["data_offsets"][0])

    def metadata(self) -> dict[str, str] | None:
        """Return the texts that were saved with the tensors."""
        return self._metadata

    def get_tensor(self, name: str) -> Any:
        """Return the tensor that the file has under a name."""
        entry = self._entries[name]
        begin, end = entry["data_offsets"]
        with self._position:
            self._file.seek(self._begin + begin)
            data = bytearray(self._file.read(end - begin))
        dtype = named(_DTYPES[entry["dtype"]])
        if not data:
            return function("empty")(entry["shape"], dtype=dtype, device=self._device)
        return frombuffer(data, dtype=dtype).reshape(entry["shape"]).to(self._device)

    def get_tensors(self) -> dict[str, Any]:
        """Return a dictionary of all tensors of the file."""
        return {name: self.get_tensor(name) for name in self.keys()}

    def get_slice(self, name: str) -> TensorSlice:
        """Return what reads a part of one tensor."""
        return TensorSlice(self, name, self._entries[name])


class TensorSlice:
    """One tensor of a file, of which an index reads a part."""

    def __init__(self, file: TensorFile, name: str, entry: dict[str, Any]) -> None:
        self._file, self._name, self._entry = file, name, entry

    def get_shape(self) -> list[int]:
        """Return the shape of the tensor in the file, whose elements are not read."""
        return list(self._entry["shape"])

    def get_dtype(self) -> str:
        """Return the element type, as the file names it."""
        return str(self._entry["dtype"])

    def __getitem__(self, index: Any) -> Any:
        return self._file.get_tensor(self._name)[index]

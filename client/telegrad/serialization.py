"""``save`` and ``load``: tensors and nested containers of them, in PyTorch's files or in safetensors files.

Nothing in a file is ever run: what is no tensor, plain container, number or string is refused by its name.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from typing import IO, Any, TypeAlias

from telegrad._ops.functions import function
from telegrad._session.devices import as_device, default_device, require_device, session_for
from telegrad._session.session import ClientSession
from telegrad._session.shapes.shape_session import meta_session
from telegrad._tensor import safetensors_files as _safetensors_files
from telegrad._tensor.atomic_files import write_atomically
from telegrad._tensor.layouts import BY_NAME, sparse_coo, strided
from telegrad._tensor.layouts import Layout as TensorLayout
from telegrad._tensor.safetensors_files import RawTensor
from telegrad._tensor.tensor import Tensor
from telegrad._tensor.torch_files.archive import Archive, write_archive
from telegrad._tensor.torch_files.classes import attributes_of, is_of_program, writes_itself
from telegrad._tensor.torch_files.descriptions import (
    Described,
    DescribedCall,
    DescribedSparse,
    DescribedWrapper,
    Description,
)
from telegrad._tensor.torch_files.file_errors import EmptyFileError
from telegrad._tensor.torch_files.objects import Objects
from telegrad._tensor.torch_files.older import BEGIN_LENGTH, NamesOfOlderFile, OlderFile, is_older_file, write_older
from telegrad._tensor.torch_files.opcodes import interpret
from telegrad._tensor.torch_files.reading import Layout, Storage, TorchNames
from telegrad._tensor.torch_files.refused_names import refused_names
from telegrad._tensor.torch_files.sharing import Storages
from telegrad._tensor.torch_files.writing import pickled
from telegrad.nn.parameter import Parameter
from telegrad.storage import storage_of
from telegrad_protocol.dtypes import DType, uint8
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DeviceError, NotSupportedError
from telegrad_protocol.meta import META, Device, Meta

FileLike: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
MapLocation: TypeAlias = "Callable[[Any, str], Any] | Device | str | int | dict[str, str] | None"

FILE_LIKE: TypeAlias = FileLike
MAP_LOCATION: TypeAlias = MapLocation
"""The two under the names that packages import from PyTorch."""

DEFAULT_PROTOCOL = 2
"""The protocol of the pickles in files."""
_ZIP = b"PK\x03\x04"


def save(
    obj: object, f: FileLike, pickle_module: Any = None, pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True, _disable_byteorder_record: bool = False,
) -> None:  # fmt: skip
    """Write tensors, arrays, numbers, strings, containers of them, modules, and objects by class and attributes.

    The file is one that PyTorch's ``torch.load`` reads, unless the name ends in ``.safetensors``. At a path it appears
    complete or not at all. Tensors that share memory share it again when they are loaded; a view is written with all of
    the memory that it is a part of, as PyTorch does: ``clone()`` it to write what it shows.
    Without ``_use_new_zipfile_serialization`` the file has the form before PyTorch 1.6, and several may follow each
    other in a stream. The other three of the last parameters are PyTorch's, and change nothing.
    """
    is_older = not _use_new_zipfile_serialization
    if hasattr(f, "write"):
        _write_torch(obj, f, _describe, is_older)
        return
    path = _as_path(f, "save")
    if path.endswith(".safetensors"):
        _safetensors_files.save(obj, path, to_raw=_to_raw)
        return

    def write(temporary: str) -> None:
        with open(temporary, "wb") as file:
            _write_torch(obj, file, _describe, is_older)

    write_atomically(os.path.realpath(path), write)


def load(
    f: FileLike, map_location: MapLocation = None, pickle_module: Any = None, *, weights_only: bool | None = None,
    mmap: bool | None = None, **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Read what ``save`` or ``torch.save`` wrote, in the form before PyTorch 1.6 too, or any safetensors file.

    Tensors of PyTorch's files go to the devices that they were saved from, those of safetensors files to the default
    device, unless ``map_location`` names another: a device, a dict from names of devices to others, or a function of
    the storage and the name of its device that returns ``storage.cpu()`` or ``storage.cuda(index)``.

    With ``weights_only``, the default, tensors, arrays and plain values are read, and what `add_safe_globals` names.
    Without it also objects of classes that the program has imported: they get their attributes, by ``__setstate__``
    where the class has it. No module is imported, and no function called, because a file names it. The other
    parameters are PyTorch's, and change nothing.

    Raises NotSupportedError for a file that has other objects, and names the first of them: where ``weights_only`` is
    why, it is a ``pickle.UnpicklingError`` too. Raises ArgumentError for a file that is damaged, which is an
    ``UnpicklingError`` too where PyTorch would unpickle it, and an ``EOFError`` where it is empty.
    """
    session = session_for(map_location if isinstance(map_location, (str, Device)) else None)
    if hasattr(f, "read"):
        given: Any = f
        seekable = given if given.seekable() else io.BytesIO(given.read())
        return _read_torch(seekable, "the file", map_location, session, weights_only)
    path = _as_path(f, "load")
    with open(path, "rb") as file:
        if _is_torch(file):
            return _read_torch(file, repr(path), map_location, session, weights_only)
    device = _mapped(default_device(session).name, map_location, session)
    return _safetensors_files.load(path, from_raw=lambda raw: _from_raw(raw, device, session))


def write_elements(tensor: Tensor, file: Any) -> None:
    """Write a tensor or parameter without its class and attributes, if it is of the program's own."""
    _write_torch(tensor, file, _describe_elements)


def _write_torch(obj: object, file: Any, describe: Callable[[Any], Description | None], is_older: bool = False) -> None:
    storages = Storages()
    content = pickled(obj, describe, storages.place, is_older)
    if is_older:
        write_older(file, content, storages)
    else:
        write_archive(file, content, storages.readers)


def _describe(obj: Any) -> Description | None:
    kind: Any = type(obj)
    if not isinstance(obj, Tensor) or writes_itself(obj):
        return None
    if obj._session.holds_gradients:
        size, strides = tuple(obj.shape), tuple(obj._meta.strides)
        arguments = (obj.dtype, size, strides, obj._meta.offset, strided, obj.device, obj.requires_grad)
        return DescribedWrapper(kind, arguments, attributes_of(obj))
    described = _describe_elements(obj)
    if not isinstance(described, Described):
        return described
    is_own = is_of_program(kind) and not described.is_parameter
    has_attributes = is_own or described.is_parameter or kind is Tensor
    return replace(
        described, kind=kind if is_own else None, attributes=attributes_of(obj) if has_attributes else None
    )  # fmt: skip


def _describe_elements(obj: Any) -> Description | None:
    if not isinstance(obj, Tensor):
        return None
    given: Any = obj
    if given.is_nested:
        return DescribedCall(*import_module("telegrad._nested.files").call_that_makes(given))
    if given.layout is not strided:
        coalesced = given.is_coalesced() if given.layout is sparse_coo else None
        return DescribedSparse(given.layout.name, given._parts, tuple(given.shape), coalesced)
    return Described(obj.dtype, tuple(obj.shape), obj.device.name, obj.requires_grad, issubclass(type(obj), Parameter))


def _read_torch(
    file: IO[bytes], where: str, map_location: MapLocation, session: ClientSession, weights_only: bool | None
) -> Any:
    if not _is_torch(file):
        raise _what_it_is(file, where)
    objects = Objects(_is_noted if weights_only in (None, True) else lambda name, value: True)

    def names(kind: Any, tensor: Any, wrapper: Any) -> Any:
        return kind(where, tensor, _parameter, _sparse, wrapper, objects)

    if _begin_of(file)[:4] == _ZIP:
        archive = Archive(file, where)
        tensors = _Tensors(archive, map_location, session)
        return _shown(interpret(archive.pickle(), names(TorchNames, tensors.tensor, tensors.wrapper), where), tensors)
    begin = file.tell()
    older = OlderFile(file.read(), where, names(NamesOfOlderFile, _on_meta, None))
    tensors = _Tensors(older, map_location, session)
    older.find_storages(names(NamesOfOlderFile, _on_meta, tensors.wrapper))
    file.seek(begin + older.end)  # where the next file in a stream begins
    return _shown(older.read(names(NamesOfOlderFile, tensors.tensor, tensors.wrapper)), tensors)


def _shown(saved: Any, tensors: _Tensors) -> Any:
    """Return what was saved; where that is a storage by itself, one of a tensor that shows all of it."""
    if not isinstance(saved, Storage):
        return saved
    whole = Layout(saved, saved.dtype or uint8, (saved.numel,), (1,), 0)
    return storage_of(tensors.tensor(whole, False), is_typed=saved.dtype is not None)


def _begin_of(file: IO[bytes]) -> bytes:
    """Return how a file goes on, which is then read from the same place."""
    place = file.tell()
    begin = file.read(BEGIN_LENGTH)
    file.seek(place)
    return begin


def _is_torch(file: IO[bytes]) -> bool:
    begin = _begin_of(file)
    return begin[:4] == _ZIP or is_older_file(begin)


def _what_it_is(file: IO[bytes], where: str) -> ArgumentError | NotSupportedError:
    """Return the error for an opened file that torch.save did not write."""
    if not _begin_of(file):
        return EmptyFileError(f"load: {where} has no bytes: Ran out of input")
    return NotSupportedError(f"load: {where} is not one of torch.save; of safetensors files, give the path")


def _on_meta(layout: Layout, requires_grad: bool) -> Tensor:
    made = Tensor(meta_session, meta_session.new_id(), Meta.of(layout.shape, layout.dtype, META))
    return made.requires_grad_() if requires_grad else made


def _parameter(data: Any, requires_grad: bool) -> Parameter:
    if not isinstance(data, Tensor):
        raise TypeError("a parameter of what is no tensor")
    return Parameter(data, requires_grad)


def _sparse(layout: Any, parts: list[Tensor], size: list[int], is_coalesced: bool) -> Tensor:
    building = import_module("telegrad.sparse")
    if layout is sparse_coo:
        return building.sparse_coo_tensor(*parts, size, is_coalesced=is_coalesced)  # type: ignore[no-any-return]
    return building.sparse_compressed_tensor(*parts, size, layout=layout)  # type: ignore[no-any-return]


class _Tensors:
    """The tensors of one file; those that share a storage in it share memory again."""

    def __init__(self, archive: Archive | OlderFile, map_location: MapLocation, session: ClientSession) -> None:
        self._archive = archive
        self._map_location = map_location
        self._session = session
        self._bases: dict[tuple[str, DType], Tensor] = {}

    def tensor(self, layout: Layout, requires_grad: bool) -> Tensor:
        """Return the tensor of a layout."""
        key = (layout.storage.key, layout.dtype)
        base = self._bases.get(key)
        if base is None:
            shape = layout.shape if layout.is_whole else (layout.numel,)
            base = self._bases[key] = self._upload(layout.storage, layout.dtype, shape)
        shown = function("as_strided")(base, layout.shape, layout.strides, layout.offset)
        made: Tensor = shown.detach()  # no view of another tensor to autograd
        return made.requires_grad_() if requires_grad else made

    def wrapper(
        self, kind: Any, dtype: DType, size: Any, strides: Any, offset: int, layout: Any, device: Any,
        requires_grad: bool,
    ) -> Any:  # fmt: skip
        """Return a tensor of a class that keeps its elements in attributes."""
        if not isinstance(kind, type) or not issubclass(kind, Tensor):
            raise TypeError("a tensor of another class")
        make: Any = Tensor._make_wrapper_subclass
        place = _mapped(str(device), self._map_location, self._session)
        return make(kind, size, strides, offset, dtype=dtype, device=place, requires_grad=bool(requires_grad))

    def _upload(self, storage: Storage, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        is_meta = storage.location == META.name  # there are no elements that could go elsewhere
        device = META if is_meta else _mapped(storage.location, self._map_location, self._session)
        if device is META:
            return Tensor(meta_session, meta_session.new_id(), Meta.of(shape, dtype, META))
        stored = storage.dtype or uint8
        data = self._archive.storage(storage.key, storage.numel * stored.itemsize, dtype.itemsize)
        return _from_raw(RawTensor(dtype, shape, data), device, self._session)


def _from_raw(raw: RawTensor, device: Device, session: ClientSession) -> Tensor:
    meta = Meta.of(raw.shape, raw.dtype, device)
    session = meta_session if device is META else session
    return Tensor(session, session.upload(meta, memoryview(raw.data).cast("B"), session.sites.current()), meta)


def _to_raw(value: Any) -> RawTensor | None:
    return RawTensor(*value._session.read(value._id)) if isinstance(value, Tensor) else None


class LocatedStorage:
    """What a function given as ``map_location`` gets and returns: where a storage is to be."""

    def __init__(self, device: str) -> None:
        self.device = Device(device)

    def cpu(self) -> LocatedStorage:
        """Return the storage on the CPU."""
        return LocatedStorage("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> LocatedStorage:
        """Return the storage on a GPU, the current one unless told."""
        return LocatedStorage("cuda" if device is None else as_device(device).name)

    def to(self, device: Any) -> LocatedStorage:
        """Return the storage on a device."""
        return LocatedStorage(as_device(device).name)


def _mapped(location: str, map_location: MapLocation, session: ClientSession) -> Device:
    """Return where tensors go that a file has at ``location``."""
    wanted: Any = map_location
    if callable(map_location):
        chosen = map_location(LocatedStorage("cpu"), location)
        wanted = None if chosen is None else chosen.device
    elif isinstance(map_location, dict):
        wanted = next((value for key, value in map_location.items() if str(key) == location), None)
    device = as_device(location if wanted is None else wanted)
    if device.type == "meta":
        return META
    try:
        return require_device(device, session, "load")
    except DeviceError as error:
        if wanted is not None:
            raise
        raise DeviceError(f"{error.message}; load with map_location, such as map_location='cpu'") from None


def _as_path(path: Any, operation: str) -> str:
    try:
        return os.fsdecode(os.fspath(path))
    except TypeError:
        raise ArgumentTypeError(f"{operation}: expected a path or a file, got a {type(path).__name__}") from None


def get_unsafe_globals_in_checkpoint(f: FileLike) -> list[str]:
    """Return the names in a file of ``save`` or ``torch.save`` that ``load`` refuses with ``weights_only=True``.

    Nothing is loaded, and no class looked up. Raises ArgumentError for any other file, and the form before PyTorch 1.6.
    """
    operation = "get_unsafe_globals_in_checkpoint"
    given: Any = f
    with nullcontext(given) if hasattr(f, "read") else open(_as_path(f, operation), "rb") as file:
        if _begin_of(file)[:4] != _ZIP:
            raise ArgumentError(f"{operation}: expected a file that torch.save has written in PyTorch 1.6 or later")
        archive = Archive(file, "the file")
    names = TorchNames("the file", _on_meta, _parameter, _sparse, _on_meta, Objects(_is_noted))
    return refused_names(archive.pickle(), names)


_safe_globals: list[Any] = []


def _get_layout(name: str) -> TensorLayout:
    """Return the layout that a pickle of PyTorch's names, such as ``torch.sparse_coo``."""
    return BY_NAME[name.removeprefix("torch.")]


def _is_noted(name: str, value: Any) -> bool:
    """Whether `add_safe_globals` was given a class or function, alone or with the name that files have for it."""
    return any(noted is value or noted == (value, name) for noted in _safe_globals)


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Note classes and functions that `load` may take from a file, also with ``weights_only=True``."""
    _safe_globals.extend(kind for kind in safe_globals if kind not in _safe_globals)


def get_safe_globals() -> list[Any]:
    """Return the classes that were noted."""
    return list(_safe_globals)


def clear_safe_globals() -> None:
    """Forget the classes that were noted."""
    _safe_globals.clear()


@contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """Note classes in this block."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe_globals[:] = before

"""Functions of ``torch._utils`` that pickles of PyTorch's name: they make tensors that show storages again."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.layouts import Layout, sparse_coo
from telegrad._tensor.tensor import Tensor
from telegrad._tensor.torch_files.classes import with_attributes
from telegrad.nn import Parameter
from telegrad.sparse import sparse_compressed_tensor, sparse_coo_tensor
from telegrad.storage import UntypedStorage
from telegrad_protocol.dtypes import DType


def _rebuild_tensor(storage: UntypedStorage, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """Return a tensor without history that shows a storage, whose elements count the offset and the strides."""
    return storage._elements().as_strided(size, stride, storage_offset).detach()


def _rebuild_tensor_v2(
    storage: UntypedStorage, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    """Return the same, which requires a gradient or not, and is conjugated or negated as ``metadata`` says."""
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    made = made.conj() if metadata and metadata.get("conj") else made
    made = -made if metadata and metadata.get("neg") else made
    return made.requires_grad_(requires_grad)


def _rebuild_tensor_v3(
    storage: UntypedStorage, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
    dtype: DType, metadata: Any = None,
) -> Tensor:  # fmt: skip
    """Return the same of a storage of bytes, as elements of a type."""
    whole = storage._elements().view(dtype)
    return whole.as_strided(size, stride, storage_offset).detach().requires_grad_(requires_grad)


def _rebuild_meta_tensor_no_storage(dtype: DType, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    """Return a tensor without elements."""
    made: Tensor = function("empty_strided")(tuple(size), tuple(stride), dtype=dtype, device="meta")
    return made.requires_grad_(requires_grad)


def _rebuild_sparse_tensor(layout: Layout, data: Any) -> Tensor:
    """Return a sparse tensor of its indices, its values and its size."""
    if layout is sparse_coo:
        indices, values, size, *flags = data
        return sparse_coo_tensor(indices, values, size, is_coalesced=flags[0] if flags else None)
    return sparse_compressed_tensor(*data, layout=layout)


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """Return the parameter that PyTorch's pickles describe by its elements; hooks are not kept in files."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Parameter:
    """Return the same with the attributes that a program has given the parameter."""
    made: Parameter = with_attributes(Parameter(data, requires_grad), state)
    return made

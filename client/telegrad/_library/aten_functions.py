"""The functions behind PyTorch's operators: those that users know under the same name, and some written here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from telegrad._functions.creation import shown
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ShapeError
from telegrad_protocol.ops import PUBLIC

from .aten_tables.composites import COMPOSITES

_PACKAGE: Final = "telegrad"
_PLACES: Final = ("linalg", "fft", "special")
"""Packages whose functions the operators are named after, such as ``linalg_inv``."""


def function_of(name: str) -> Callable[..., Any] | None:
    """Return the function that an operator of PyTorch's library is; None if telegrad has none."""
    own = _OWN.get(name) or COMPOSITES.get(name)
    if own is not None or name.startswith("__"):
        return own
    own = _derivatives().get(name)
    if own is not None:
        return own
    if name in PUBLIC and name not in _OF_TELEGRAD:
        known: Callable[..., Any] = function(name)
        return known
    package = import_module(_PACKAGE)
    for place in (package, Tensor, package.nn.functional):
        run = getattr(place, name, None)
        if callable(run) and not isinstance(run, type):
            return run  # type: ignore[no-any-return]
    below, _, last = name.partition("_")
    run = getattr(getattr(package, below), last, None) if below in _PLACES else None
    return run if callable(run) else None


_OF_TELEGRAD: Final = frozenset(("_ctc_loss", "_ctc_loss_backward"))
"""Operations of telegrad's own whose names PyTorch has for operators with other arguments."""


@cache
def _derivatives() -> dict[str, Callable[..., Any]]:
    """Return the operators of derivatives, which name parts of the package that import this one."""
    found = import_module(f"{__package__}.compiled.composed")
    composed = {name: value for name, value in vars(found).items() if name.endswith("_backward")}
    own: dict[str, Callable[..., Any]] = import_module(f"{__package__}.aten_tables.derivatives").FUNCTIONS
    internals: dict[str, Callable[..., Any]] = import_module(f"{__package__}.aten_tables.internals").INTERNALS
    variants: dict[str, Callable[..., Any]] = import_module(f"{__package__}.aten_tables.variants").VARIANTS
    return {**composed, **internals, **own, **variants}


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    along = dim % max(input.ndim, 1)
    return input[(*[slice(None)] * along, slice(start, end, step))]


def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    ignored = None if padding_idx < 0 else padding_idx
    result: Tensor = function("embedding")(indices, weight, ignored, None, 2.0, scale_grad_by_freq, sparse)
    return result


def _native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    return grad_output * mask * scale


def _max_pool2d_with_indices_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    indices: Tensor,
) -> Tensor:  # fmt: skip
    if grad_output.shape != indices.shape:
        raise ShapeError(f"max_pool2d_with_indices_backward: {indices._meta} are not positions of {grad_output._meta}")
    spread = self.masked_fill(self == self, 0).masked_fill(self != self, 0)  # its gradient by ``self`` is zero
    flat: Tensor = spread.flatten(-2).scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2))
    return flat.reshape(self.shape)


def _sparse_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
    return import_module("telegrad.sparse").addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def _sparse_mm_reduce(mat1: Tensor, mat2: Tensor, reduce: str) -> Any:
    return import_module("telegrad.sparse").mm(mat1, mat2, reduce), None


def _in_format(make: Callable[..., Any], format: Any) -> Any:
    return make() if format is None else make(memory_format=format)


def _resized(mode: str) -> Callable[..., Any]:
    """Return resizing by a mode, with the arguments of its operators."""
    has_corners = "nearest" not in mode

    def run(self: Tensor, output_size: Any, *rest: Any) -> Any:
        scales = rest[1:] if has_corners else rest
        named: dict[str, Any] = {"align_corners": bool(rest[0])} if has_corners else {}
        if output_size is None:
            named["scale_factor"] = tuple(scales[0] if isinstance(scales[0], (list, tuple)) else scales)
        else:
            named["size"] = tuple(output_size)
        return import_module(f"{_PACKAGE}.nn.functional").interpolate(self, mode=mode, **named)

    return run


def _padded(mode: str) -> Callable[..., Any]:
    return lambda self, padding: import_module(f"{_PACKAGE}.nn.functional").pad(self, tuple(padding), mode)


def _with_places(name: str) -> Callable[..., Any]:
    """Return pooling that also returns the places of the maxima."""
    return lambda self, size: getattr(import_module(f"{_PACKAGE}.nn.functional"), name)(self, size, return_indices=True)


def _unpooled(dims: int) -> Callable[..., Any]:
    def run(self: Tensor, indices: Tensor, output_size: Any, *geometry: Any) -> Any:
        leading, spatial = self.shape[:-dims], tuple(output_size)
        count = import_module(_PACKAGE).Size(spatial).numel()
        flat = self.new_zeros((*leading, count)).scatter(-1, indices.flatten(-dims), self.flatten(-dims))
        return flat.reshape(*leading, *spatial)

    return run


def _to_copy(
    self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    non_blocking: bool = False, memory_format: Any = None,
) -> Any:  # fmt: skip
    named = {"dtype": dtype, "device": device, "memory_format": memory_format}
    return self.to(copy=True, **{name: value for name, value in named.items() if value is not None})


def _uniques(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *,
    consecutive: bool,
) -> Any:  # fmt: skip
    run = getattr(import_module(_PACKAGE), "unique_consecutive" if consecutive else "unique")
    values, inverse, counts = run(self, return_inverse=True, return_counts=True, dim=dim)
    empty = inverse.new_empty((0,))
    return values, inverse if return_inverse else empty, counts if return_counts else empty


def _linalg(name: str, *places: int) -> Callable[..., Any]:
    """Return a function of ``linalg``, of whose results some are returned."""

    def run(*args: Any, **kwargs: Any) -> Any:
        results = getattr(import_module(_PACKAGE).linalg, name)(*args, **kwargs)
        return tuple([results[place] for place in places])

    return run


_OWN: Final[dict[str, Callable[..., Any]]] = {
    **{
        f"upsample_{mode}{dims}": _resized(mode)
        for mode, dims in (
            ("nearest", "1d"),
            ("nearest", "2d"),
            ("nearest", "3d"),
            ("linear", "1d"),
            ("bilinear", "2d"),
            ("bicubic", "2d"),
            ("trilinear", "3d"),
        )
    },
    **{f"_upsample_nearest_exact{dims}d": _resized("nearest-exact") for dims in (1, 2, 3)},
    **{f"reflection_pad{dims}d": _padded("reflect") for dims in (1, 2, 3)},
    **{f"replication_pad{dims}d": _padded("replicate") for dims in (1, 2, 3)},
    **{f"adaptive_max_pool{dims}d": _with_places(f"adaptive_max_pool{dims}d") for dims in (2, 3)},
    **{f"_adaptive_avg_pool{dims}d": function(f"adaptive_avg_pool{dims}d") for dims in (2, 3)},
    "max_unpool2d": _unpooled(2),
    "max_unpool3d": _unpooled(3),
    "_to_copy": _to_copy,
    "_softmax": lambda self, dim, half_to_float: function("softmax")(self, dim),
    "_log_softmax": lambda self, dim, half_to_float: function("log_softmax")(self, dim),
    "_safe_softmax": lambda self, dim, dtype=None: function("softmax")(self, dim, dtype=dtype).nan_to_num(0.0),
    "_unsafe_view": lambda self, size: self.clone().view(size),
    "_conj": lambda self: self.conj(),
    "_conj_physical": lambda self: self.conj().resolve_conj(),
    "_local_scalar_dense": lambda self: self.item(),
    "_linalg_check_errors": lambda info, api_name, *, is_matrix: None,
    "_linalg_eigh": _linalg("eigh", 0, 1),
    "_linalg_svd": _linalg("svd", 0, 1, 2),
    "_unique2": lambda self, sorted=True, return_inverse=False, return_counts=False: _uniques(
        self, return_inverse, return_counts, consecutive=False
    ),
    "_unique": lambda self, sorted=True, return_inverse=False: _uniques(self, return_inverse, consecutive=False)[:2],
    "unique_consecutive": lambda self, return_inverse=False, return_counts=False, dim=None: _uniques(
        self, return_inverse, return_counts, dim, consecutive=True
    ),
    "clone": lambda self, *, memory_format=None: _in_format(self.clone, memory_format),
    "lift": lambda self: self,
    "lift_fresh": shown,
    "lift_fresh_copy": lambda self: self.clone(),
    "_cdist_forward": lambda x1, x2, p, mode: import_module(_PACKAGE).cdist(x1, x2, p),
    "_pdist_forward": lambda self, p=2.0: import_module(_PACKAGE).pdist(self, p),
    "log_sigmoid_forward": lambda self: (
        import_module(f"{_PACKAGE}.nn.functional").logsigmoid(self),
        function("exp")(-self.abs()),
    ),
    "col2im": lambda self, size, kernel, dilation, padding, stride: import_module(f"{_PACKAGE}.nn.functional").fold(
        self, tuple(size), tuple(kernel), tuple(dilation), tuple(padding), tuple(stride)
    ),
    "slice": _slice,
    "embedding": _embedding,
    "_sparse_addmm": _sparse_addmm,
    "_sparse_mm_reduce_impl": _sparse_mm_reduce,
    "_pin_memory": lambda self, device=None: self.pin_memory(),
    "native_dropout_backward": _native_dropout_backward,
    "max_pool2d_with_indices_backward": _max_pool2d_with_indices_backward,
}

"""Parametrizations: a direction and its length, division by the largest singular value, and orthogonal matrices."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from telegrad.nn.modules.module import Module

from .parametrize import register_parametrization
from .weight_norm import norm_except, weight_of

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_of(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Make a weight of a length, which keeps ``dim``, and a direction.

    T. Salimans, D. Kingma, Weight normalization (2016).
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def accept_former_names(state_dict: Any, prefix: str, *_: Any) -> None:
        former = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in former):
            for number, key in enumerate(former):
                state_dict[f"{prefix}parametrizations.{name}.original{number}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(accept_former_names)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._as_matrix(weight.detach())
            rows, columns = matrix.shape
            self.register_buffer("_u", F.normalize(matrix.new_empty(rows).normal_(0, 1), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(matrix.new_empty(columns).normal_(0, 1), dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _as_matrix(self, weight: Tensor) -> Tensor:
        return weight.transpose(0, self.dim).flatten(1) if self.dim else weight.flatten(1)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        """Improve the estimates of the singular vectors by power iterations."""
        with no_grad():
            for _ in range(count):
                self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.mH.mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / u.vdot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by an estimate of its largest singular value, which every call in training improves.

    T. Miyato et al., Spectral normalization for generative adversarial networks (2018).
    """
    weight = _tensor_of(module, name)
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def _tensor_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


class _Orthogonal(Module):
    """A matrix with orthonormal columns (rows if it is wide) of any matrix; ``base`` is a fixed factor."""

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        is_wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if is_wide else X
        q = self._reflected(tall) if self.orthogonal_map == "householder" else self._by_skew(tall.tril())
        base = self._buffers.get("base")
        q = q if base is None else base @ q
        return q.mT if is_wide else q

    def _reflected(self, tall: Tensor) -> Tensor:
        """Return the product of Householder reflections, with the signs of the diagonal, which is not learned."""
        vectors = tall.tril(-1)
        factors = 2.0 / (1.0 + (vectors * vectors).sum(-2))
        q: Tensor = function("linalg_householder_product")(vectors, factors)
        return q * tall.detach().diagonal(0, -2, -1).int().unsqueeze(-2)

    def _by_skew(self, lower: Tensor) -> Tensor:
        """Return the first columns of the exponential, or the Cayley transform, of a skew-Hermitian matrix."""
        rows, columns = lower.shape[-2:]
        if rows != columns:
            lower = function("cat")([lower, lower.new_zeros((*lower.shape[:-1], rows - columns))], -1)
        skew = lower - lower.mT.conj()
        if self.orthogonal_map == "matrix_exp":
            q: Tensor = function("matrix_exp")(skew)
        else:
            eye = function("eye")(rows, dtype=skew.dtype, device=skew.device)
            q = function("linalg_solve")(eye - skew * 0.5, eye + skew * 0.5)
        return q[..., :columns] if rows != columns else q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if tuple(Q.shape) != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got {tuple(Q.shape)}.")
        is_wide = Q.shape[-2] < Q.shape[-1]
        tall = Q.mT if is_wide else Q
        if "base" in self._buffers:
            self.base = _square(tall)
            eye: Tensor = function("eye")(*Q.shape[-2:], dtype=Q.dtype, device=Q.device)
            return eye.neg().expand(Q.shape).contiguous()  # all maps make the identity of it
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        reflectors, scales = function("geqrf")(tall)
        signs = reflectors.diagonal(0, -2, -1).sign()
        signs = function("where")(scales == 0, -signs, signs)  # a reflector that LAPACK leaves out is one here
        result = reflectors.diagonal_scatter(signs, 0, -2, -1)
        return result.mT if is_wide else result  # type: ignore[no-any-return]


def _square(tall: Tensor) -> Tensor:
    """Return an orthogonal matrix whose first columns span those of ``tall``, and are these if they are orthonormal."""
    rows, columns = tall.shape[-2:]
    if rows != columns:
        random = function("randn")((*tall.shape[:-1], rows - columns), dtype=tall.dtype, device=tall.device)
        tall = function("cat")([tall, random], -1)
    q, r = function("linalg_qr")(tall)
    return q * r.diagonal(0, -2, -1).sgn().unsqueeze(-2)  # type: ignore[no-any-return]


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Make a matrix orthogonal: by ``matrix_exp``, ``cayley`` or ``householder`` reflections of a free one."""
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        is_square = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
        orthogonal_map = "matrix_exp" if is_square else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)

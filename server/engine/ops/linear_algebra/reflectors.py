"""Products of Householder reflectors; derivatives by these are those of one reflection after the other."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.array_library.lapack import library_of
from server.engine.autograd.inplace import requires_grad
from server.engine.operators import OPERATORS, Single
from server.engine.ops.complex import conj
from server.engine.registry import comes_to, composite, implements
from telegrad_protocol.ops.linear_algebra import factorizations as ops

from ..derivatives import not_differentiable
from .matrices import adjoint, constant_of


@implements(ops.geqrf, input=not_differentiable("geqrf", "input"))
def geqrf(xp, input):
    return library_of(xp).geqrf(input)


def _reflectors(A):
    """The vectors of Householder reflectors as columns: 1 on the diagonal, what LAPACK stored below."""
    m, k = A.shape[-2:]
    return F.tril(A, -1) + F.eye(m, k, dtype=A.dtype, device=A.device)


def _reflected(V, tau, number, matrix):
    """matrix - tau v v^H matrix"""
    v = F.narrow(V, -1, number, 1)
    scale = F.unsqueeze(F.narrow(tau, -1, number, 1), -1)
    return matrix - scale * F.matmul(v, F.matmul(adjoint(v), matrix))


@implements(ops.plain_householder_product, A=None, tau=None)
def plain_householder_product(xp, A, tau):
    return library_of(xp).householder_product(A, tau)


@composite(ops.householder_product)
def householder_product(A, tau):
    """A kernel, or one reflection after the other where these are differentiated."""
    if not (requires_grad(A) or requires_grad(tau)):
        return F._householder_product(A, tau)
    V = _reflectors(A)
    product = constant_of(A, F.eye(*A.shape[-2:], dtype=A.dtype, device=A.device))
    if not tau.shape[-1]:
        return product + F.unsqueeze(F.sum(tau, -1, True), -1)
    for number in reversed(range(tau.shape[-1])):
        product = _reflected(V, tau, number, product)
    return product


@comes_to(ops.householder_product)
@comes_to(ops.orgqr)
def _only_plain_householder_product(records, A, tau):
    return None if records else Single(OPERATORS["_householder_product"])


@comes_to(ops.ormqr)
def _only_plain_ormqr(records, input, tau, other, left, transpose):
    return None if records else Single(OPERATORS["_ormqr"])


@composite(ops.orgqr)
def orgqr(input, tau):
    return F.linalg_householder_product(input, tau)


@implements(
    ops.plain_ormqr,
    input=None,
    tau=None,
    other=lambda grad, input, tau, left, transpose: F._ormqr(input, tau, grad, left, not transpose),
)
def plain_ormqr(xp, input, tau, other, left, transpose):
    return library_of(xp).ormqr(input, tau, other, left, transpose)


@composite(ops.ormqr)
def ormqr(input, tau, other, left, transpose):
    if not (requires_grad(input) or requires_grad(tau)):
        return F._ormqr(input, tau, other, left, transpose)
    count = tau.shape[-1]
    if not left:  # C Q is the adjoint of Q^H C^H
        return adjoint(ormqr(input, tau, adjoint(other), True, not transpose))
    if not count:
        nothing = F.sum(F.narrow(input, -1, 0, 0), (-2, -1), True) + F.unsqueeze(F.sum(tau, -1, True), -1)
        return other + nothing
    V, scales = _reflectors(input), conj(tau) if transpose else tau
    numbers = range(count) if transpose else reversed(range(count))
    for number in numbers:
        other = _reflected(V, scales, number, other)
    return other

"""The package ``functorch``, which comes with PyTorch: transforms of functions, and classes for ``isinstance``."""

from __future__ import annotations

from telegrad.func import grad as grad
from telegrad.func import grad_and_value as grad_and_value
from telegrad.func import hessian as hessian
from telegrad.func import jacfwd as jacfwd
from telegrad.func import jacrev as jacrev
from telegrad.func import jvp as jvp
from telegrad.func import vjp as vjp
from telegrad.func import vmap as vmap
from telegrad.nn import Module


class FunctionalModule(Module):
    """A module that is called with its parameters, of ``make_functional``; none is made: use ``func.functional_call``.
    """  # fmt: skip


class FunctionalModuleWithBuffers(FunctionalModule):
    """One that is called with its buffers, too."""

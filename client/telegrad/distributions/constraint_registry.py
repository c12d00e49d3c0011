"""``biject_to`` and ``transform_to``: from unconstrained numbers into a region."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from . import constraints, transforms, vector_transforms
from .constraints import Constraint


class ConstraintRegistry(Constraint):
    """Which transform leads into a region, by the region's type."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Keep a function that makes the transform for regions of this type; without one, decorate it."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        self._registry[constraint if isinstance(constraint, type) else type(constraint)] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _interval(region: Any) -> Any:
    bounds = region.lower_bound, region.upper_bound
    if all([isinstance(bound, Number) for bound in bounds]) and bounds == (0, 1):
        return transforms.SigmoidTransform()
    scale = region.upper_bound - region.lower_bound
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(region.lower_bound, scale)]
    )


def _above(region: Any) -> Any:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(region.lower_bound, 1)])


def _below(region: Any) -> Any:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(region.upper_bound, -1)])


def _parts(registry: Any, kind: Any) -> Any:
    def made(region: Any) -> Any:
        inner = [registry(part) for part in region.cseq]
        return (
            kind(inner, region.dim, region.lengths)
            if kind is vector_transforms.CatTransform
            else kind(inner, region.dim)
        )

    return made


for _registry in (biject_to, transform_to):
    _registry.register(constraints.real, lambda region: transforms.identity_transform)
    _registry.register(constraints.interval, _interval)
    _registry.register(constraints.half_open_interval, _interval)
    _registry.register(constraints.greater_than, _above)
    _registry.register(constraints.greater_than_eq, _above)
    _registry.register(constraints.less_than, _below)
    _registry.register(constraints.lower_cholesky, lambda region: vector_transforms.LowerCholeskyTransform())
    _registry.register(constraints.corr_cholesky, lambda region: vector_transforms.CorrCholeskyTransform())
    _registry.register(constraints.positive_definite, lambda region: vector_transforms.PositiveDefiniteTransform())
    _registry.register(constraints.positive_semidefinite, lambda region: vector_transforms.PositiveDefiniteTransform())
    _registry.register(constraints.cat, _parts(_registry, vector_transforms.CatTransform))
    _registry.register(constraints.stack, _parts(_registry, vector_transforms.StackTransform))


def _biject_blocks(region: Any) -> Any:
    return vector_transforms.IndependentTransform(biject_to(region.base_constraint), region.reinterpreted_batch_ndims)


def _transform_blocks(region: Any) -> Any:
    return vector_transforms.IndependentTransform(
        transform_to(region.base_constraint), region.reinterpreted_batch_ndims
    )


biject_to.register(constraints.independent, _biject_blocks)
transform_to.register(constraints.independent, _transform_blocks)
biject_to.register(constraints.simplex, lambda region: vector_transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda region: vector_transforms.SoftmaxTransform())

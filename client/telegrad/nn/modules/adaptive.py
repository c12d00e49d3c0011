"""An approximation of softmax for many classes, of which some are much more frequent than others.

E. Grave et al., Efficient softmax approximation for GPUs (2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ShapeError

from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log-probability of each target, and the mean of their negatives.

    The ``cutoffs`` divide the classes, sorted by falling frequency, into a shortlist and clusters; a cluster's
    projection has ``div_value`` times fewer features than that of the cluster before it.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ArgumentError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(set(map(int, cutoffs))) or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1:
            raise ArgumentError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, head_bias, **place)
        self.tail = ModuleList()
        for number in range(self.n_clusters):
            hidden = int(in_features // div_value ** (number + 1))
            size = self.cutoffs[number + 1] - self.cutoffs[number]
            projection = Linear(in_features, hidden, False, **place)
            self.tail.append(Sequential(projection, Linear(hidden, size, False, **place)))

    def reset_parameters(self) -> None:
        """Give the parameters their initial values."""
        self.head.reset_parameters()
        for projection, output in self.tail:
            projection.reset_parameters()
            output.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        is_batched = target_.ndim > 0
        input, target = (input_, target_) if is_batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        if target.ndim > 1:
            raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
        if input.ndim != 2 or input.shape[0] != target.shape[0]:
            raise ShapeError(
                f"Input and target should have the same size in the batch dimension, got {input._meta} and "
                f"{target._meta}"
            )
        output = self.log_prob(input).gather(1, target.unsqueeze(1)).squeeze(1)
        loss = output.neg().mean()
        return _ASMoutput(output if is_batched else output.squeeze(0), loss)

    def _from_head(self, input: Tensor, head: Tensor) -> Tensor:
        """Return the log-probabilities of all classes, given the head's output."""
        by_head = F.log_softmax(head, 1)
        parts = [by_head[:, : self.shortlist_size]]
        for number, cluster in enumerate(self.tail):
            own = by_head[:, self.shortlist_size + number].unsqueeze(1)
            parts.append(F.log_softmax(cluster(input), 1) + own)
        return function("cat")(parts, 1)  # type: ignore[no-any-return]

    def log_prob(self, input: Tensor) -> Tensor:
        """Return the log-probabilities of all classes: (n, in_features) -> (n, n_classes)."""
        return self._from_head(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """Return the most probable class of each row."""
        return self.log_prob(input).argmax(1)

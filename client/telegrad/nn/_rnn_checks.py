"""What recurrent layers say of the shapes of inputs and states."""

from __future__ import annotations

from typing import Any

from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ShapeError


class ShapeChecks:
    """Which shapes a layer with these settings expects."""

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    batch_first: bool
    bidirectional: bool
    proj_size: int
    _flat_weights_names: list[str]

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _outputs(self) -> int:
        return self.proj_size or self.hidden_size

    def check_input(self, input: Tensor, batch_sizes: Any) -> None:
        """Refuse an input that is not (steps, batch, features), or packed (rows, features), or of another type."""
        dtype = getattr(self, self._flat_weights_names[0]).dtype
        if input.dtype is not dtype and thread.modes.autocast is None:
            raise ArgumentError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). Convert input: "
                f"input.to({dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.ndim != expected:
            raise ShapeError(f"input must have {expected} dimensions, got {input.ndim}")
        if input.shape[-1] != self.input_size:
            raise ShapeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )

    def check_hidden_size(
        self, hx: Tensor, expected: tuple[int, ...], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Refuse a state that has not the expected shape."""
        if tuple(hx.shape) != expected:
            raise ShapeError(msg.format(expected, list(hx.shape)))

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of the state for an input; ``batch_sizes`` are those of a packed one."""
        return self.num_layers * self._directions, self._batch_of(input, batch_sizes), self._outputs

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Refuse an input, or a state for it, that has not the expected shape."""
        self.check_input(input, batch_sizes)
        self._check_states(list(hidden) if self.mode == "LSTM" else [hidden], self._batch_of(input, batch_sizes))

    def _batch_of(self, input: Tensor, batch_sizes: Tensor | None) -> int:
        if batch_sizes is not None:
            return int(batch_sizes[0])
        return int(input.shape[0 if self.batch_first else 1])

    def _check_states(self, states: list[Tensor], batch: int) -> None:
        lead = (self.num_layers * self._directions, batch)
        is_lstm = self.mode == "LSTM"
        first = "Expected hidden[0] size {}, got {}" if is_lstm else "Expected hidden size {}, got {}"
        self.check_hidden_size(states[0], (*lead, self._outputs), first)
        if is_lstm:
            self.check_hidden_size(states[1], (*lead, self.hidden_size), "Expected hidden[1] size {}, got {}")

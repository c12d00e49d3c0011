"""Recurrent layers and cells: Elman's, LSTM (S. Hochreiter, J. Schmidhuber, 1997), and GRU (K. Cho et al., 2014).

All layers are one operation of the server, over whole sequences.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._tensor.number_checks import is_number
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn import init
from telegrad.nn._rnn_checks import ShapeChecks
from telegrad.nn.parameter import Parameter, new_parameter
from telegrad.nn.utils.rnn import PackedSequence, batch_sizes_of
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, ShapeError
from telegrad_protocol.ops.layers.rnn import GATES

from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """Return the slices of a tensor along a dimension in another order."""
    return tensor.index_select(dim, permutation)


def _reordered(state: Tensor, permutation: Tensor | None) -> Tensor:
    return state if permutation is None else apply_permutation(state, permutation)


class RNNBase(ShapeChecks, Module):
    """Layers of one kind on top of each other: ``mode`` is LSTM, GRU, RNN_TANH or RNN_RELU.

    The weights of layer k are ``weight_ih_l{k}``, ``weight_hh_l{k}``, and so on; those of the reverse direction end in
    ``_reverse``. All start uniform within 1 / sqrt(hidden_size).
    """

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, flag in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise ArgumentTypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
        _check_settings(mode, input_size, hidden_size, num_layers, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(self._directions):
                self._all_weights.append(self._make_weights(layer, direction, place))
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    def _make_weights(self, layer: int, direction: int, place: dict[str, Any]) -> list[str]:
        """Make the parameters of one layer in one direction, and return their names."""
        features = self.input_size if layer == 0 else self._outputs * self._directions
        rows = GATES[self.mode] * self.hidden_size
        sizes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, features), "weight_hh": (rows, self._outputs)}
        if self.bias:
            sizes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            sizes["weight_hr"] = (self.proj_size, self.hidden_size)
        names = {f"{name}_l{layer}{'_reverse' if direction else ''}": size for name, size in sizes.items()}
        for name, size in names.items():
            setattr(self, name, new_parameter(*size, **place))
        return list(names)

    def reset_parameters(self) -> None:
        """Give the parameters their initial values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: the server does not need the weights in one piece of memory."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters, a list per layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self) -> list[Parameter]:
        """The parameters in the order in which ``_VF.lstm`` and its like take them."""
        return [getattr(self, name) for name in self._flat_weights_names]

    def _new_states(self, input: Tensor, batch: int) -> list[Tensor]:
        lead = (self.num_layers * self._directions, batch)
        widths = [self._outputs, self.hidden_size] if self.mode == "LSTM" else [self._outputs]
        return [input.new_zeros((*lead, width)) for width in widths]

    def _forward(self, input: Any, hx: Any) -> tuple[Any, list[Tensor]]:
        """Run all layers on a packed or plain input; ``hx`` is None or a list of one state, or of two."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.ndim not in (2, 3):
            raise ArgumentError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        is_batched = input.ndim == 3
        if hx is not None and any(state.ndim != input.ndim for state in hx):
            kind = "batched" if is_batched else "unbatched"
            shapes = ", ".join(f"{state.ndim}-D" for state in hx)
            raise ShapeError(
                f"For {kind} {input.ndim}-D input, hx should also be {input.ndim}-D but got {shapes} tensor"
            )
        steps_first = input.transpose(0, 1) if self.batch_first and is_batched else input
        steps_first = steps_first if is_batched else input.unsqueeze(1)
        self.check_input(steps_first, None)
        steps, batch, features = steps_first.shape
        states = self._new_states(input, batch) if hx is None else hx if is_batched else [s.unsqueeze(1) for s in hx]
        self._check_states(states, batch)
        output, states = self._run(steps_first.reshape(steps * batch, features), states, ())
        output = output.view(steps, batch, -1)
        if not is_batched:
            return output.squeeze(1), [state.squeeze(1) for state in states]
        return output.transpose(0, 1) if self.batch_first else output, states

    def _forward_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, list[Tensor]]:
        sizes = batch_sizes_of(input)
        self.check_input(input.data, sizes)
        states = (
            self._new_states(input.data, sizes[0])
            if hx is None
            else [_reordered(state, input.sorted_indices) for state in hx]
        )
        self._check_states(states, sizes[0])
        output, states = self._run(input.data, states, sizes)
        return input._with_data(output), [_reordered(state, input.unsorted_indices) for state in states]

    def permute_hidden(self, hx: Tensor, permutation: Tensor | None) -> Tensor:
        """Return the states of sequences in another order."""
        return _reordered(hx, permutation)

    def _run(self, rows: Tensor, states: list[Tensor], batch_sizes: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
        """Run all layers on packed rows: (rows, features) -> (rows, directions * outputs), and the last states."""
        cells = states[1] if len(states) > 1 else None
        output, *last = function("_rnn")(
            rows, states[0], cells, [getattr(self, name) for name in self._flat_weights_names], self.mode,
            self.num_layers, self.bidirectional, self.bias, self.dropout if self.training else 0.0, batch_sizes,
        )  # fmt: skip
        return output, last[: len(states)]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False,
        }  # fmt: skip
        return text + "".join(f", {n}={getattr(self, n)}" for n, v in defaults.items() if getattr(self, n) != v)


def _check_settings(
    mode: str, input_size: Any, hidden_size: Any, num_layers: int, dropout: Any, proj_size: int
) -> None:
    if not is_number(dropout) or not 0 <= dropout <= 1:
        raise ArgumentError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if dropout and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    if not isinstance(hidden_size, int):
        raise ArgumentTypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value <= 0:
            raise ArgumentError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ArgumentError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ArgumentError("proj_size has to be smaller than hidden_size")
    if mode not in GATES:
        raise ArgumentError(f"Unrecognized RNN mode: {mode}")


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with ``nonlinearity="relu"`` max(0, ...), at every step.

    Arguments are those of ``RNNBase`` without ``mode``, with ``nonlinearity`` after ``num_layers``. Takes (t, n, input)
    or packed sequences and h_0 of (layers * directions, n, hidden); returns all outputs of the last layer, and h_n.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ArgumentError("proj_size argument is only supported for LSTM, not RNN or GRU")
        nonlinearity = args[3] if len(args) > 3 else kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args[:3], *args[4:], **kwargs)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (h,) = self._forward(input, None if hx is None else [hx])
        return output, h


class GRU(RNNBase):
    """Gated recurrent units: n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h, with gates r and z.

    Arguments are those of ``RNNBase`` without ``mode``. Takes (t, n, input) or packed sequences and h_0 of
    (layers * directions, n, hidden); returns all outputs of the last layer, and h_n.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ArgumentError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (h,) = self._forward(input, None if hx is None else [hx])
        return output, h


class LSTM(RNNBase):
    """Long short-term memory: c' = f c + i g, h' = o tanh(c'), with gates i, f, o and g = tanh(W_ig x + W_hg h + b).

    Arguments are those of ``RNNBase`` without ``mode``. Takes (t, n, input) or packed sequences and (h_0, c_0) of
    (layers * directions, n, proj or hidden) and (layers * directions, n, hidden); returns all outputs of the last
    layer, and (h_n, c_n).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of the cells' state for an input."""
        return self.num_layers * self._directions, self._batch_of(input, batch_sizes), self.hidden_size

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """Return the states (h, c) of sequences in another order."""
        h, c = hx
        return _reordered(h, permutation), _reordered(c, permutation)

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        output, states = self._forward(input, None if hx is None else list(hx))
        return output, (states[0], states[1])


class RNNCellBase(Module):
    """One step of a recurrent layer: weights ``weight_ih`` and ``weight_hh``, and biases."""

    bias_ih: Parameter | None
    bias_hh: Parameter | None
    weight_ih: Parameter
    weight_hh: Parameter

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        rows = num_chunks * hidden_size
        self.weight_ih = new_parameter(rows, input_size, **place)
        self.weight_hh = new_parameter(rows, hidden_size, **place)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, new_parameter(rows, **place) if bias else None)
        self.reset_parameters()

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}" + ("" if self.bias is True else f", bias={self.bias}")
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def reset_parameters(self) -> None:
        """Give the parameters their initial values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _products(self, input: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        return F.linear(input, self.weight_ih, self.bias_ih), F.linear(hx, self.weight_hh, self.bias_hh)

    def _state(self, input: Tensor, hx: Tensor | None) -> Tensor:
        """Check input and state, and return the state, zero if there is none."""
        name = self._get_name()
        if input.ndim not in (1, 2):
            raise ArgumentError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        if hx is not None and hx.ndim not in (1, 2):
            raise ArgumentError(f"{name}: Expected hidden to be 1D or 2D, got {hx.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise ShapeError(f"input has inconsistent input_size: got {input.shape[-1]}, expected {self.input_size}")
        if hx is not None and hx.shape[-1] != self.hidden_size:
            raise ShapeError(f"hidden has inconsistent hidden_size: got {hx.shape[-1]}, expected {self.hidden_size}")
        wanted = (*input.shape[:-1], self.hidden_size)
        if hx is not None and tuple(hx.shape) != wanted:
            raise ShapeError(
                f"{name}: Input {input._meta} doesn't match hidden {hx._meta}; its shape should be {wanted}"
            )
        return input.new_zeros(wanted) if hx is None else hx


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with ``nonlinearity="relu"`` max(0, ...)."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"Unknown nonlinearity: {self.nonlinearity}")
        by_input, by_state = self._products(input, self._state(input, hx))
        return function(self.nonlinearity)(by_input + by_state)  # type: ignore[no-any-return]


class LSTMCell(RNNCellBase):
    """One step of ``LSTM``: takes x and (h, c), returns (h', c')."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = (self._state(input, state) for state in (hx or (None, None)))
        by_input, by_state = self._products(input, h)
        i, f, g, o = (by_input + by_state).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRUCell(RNNCellBase):
    """One step of ``GRU``: takes x and h, returns h'."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        h = self._state(input, hx)
        by_input, by_state = self._products(input, h)
        (r, z, n), (hr, hz, hn) = by_input.chunk(3, -1), by_state.chunk(3, -1)
        new = (n + (r + hr).sigmoid() * hn).tanh()
        return new + (z + hz).sigmoid() * (h - new)

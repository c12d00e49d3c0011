"""Sequences of different lengths: packed for recurrent layers, or padded to one length.

A packed sequence has all first elements, then all second ones, and so on; ``batch_sizes`` tells how many sequences have
each. Lengths are numbers of the client: given as a tensor, they are read with one round trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from telegrad._functions.creation import tensor
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, ShapeError

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
    "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip

Lengths = Tensor | Sequence[int]


class PackedSequence_(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Sequences whose elements are packed step by step, the longest sequence first.

    ``sorted_indices`` has the number of each sequence before it was sorted, and ``unsorted_indices`` its inverse.
    """

    def __new__(
        cls, data: Tensor, batch_sizes: Any = None, sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:  # fmt: skip
        if batch_sizes is None:  # the former form: a pair
            data, batch_sizes = cast(tuple[Tensor, Tensor], data)
        if batch_sizes.device.type != "cpu":
            raise ArgumentError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequence in "
                "nn.utils.rnn."
            )
        inverse = invert_permutation(sorted_indices) if unsorted_indices is None else unsorted_indices
        return super().__new__(cls, data, batch_sizes, sorted_indices, inverse)

    def _with_data(self, data: Tensor) -> PackedSequence:
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Move and cast the elements as ``Tensor.to`` does; the indices move along."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = [None if t is None else t.to(data.device) for t in self[2:]]
        return type(self)(data, self.batch_sizes, *moved)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Move everything but ``batch_sizes`` to a GPU."""
        moved = [None if t is None else t.cuda(*args, **kwargs) for t in (self.data, *self[2:])]
        return type(self)(cast(Tensor, moved[0]), self.batch_sizes, *moved[1:])

    def cpu(self) -> PackedSequence:
        """Move everything to the server's CPU."""
        return self.to(device="cpu")

    def float(self) -> PackedSequence:
        """Cast the elements to float32."""
        return self._with_data(self.data.float())

    def double(self) -> PackedSequence:
        """Cast the elements to float64."""
        return self._with_data(self.data.double())

    def half(self) -> PackedSequence:
        """Cast the elements to float16."""
        return self._with_data(self.data.half())

    def long(self) -> PackedSequence:
        """Cast the elements to int64."""
        return self._with_data(self.data.long())

    def int(self) -> PackedSequence:
        """Cast the elements to int32."""
        return self._with_data(self.data.int())

    def short(self) -> PackedSequence:
        """Cast the elements to int16."""
        return self._with_data(self.data.short())

    def char(self) -> PackedSequence:
        """Cast the elements to int8."""
        return self._with_data(self.data.char())

    def byte(self) -> PackedSequence:
        """Cast the elements to uint8."""
        return self._with_data(self.data.byte())

    def pin_memory(self) -> PackedSequence:
        """Return the sequence itself: the server pins its host memory by itself."""
        return self

    def is_pinned(self) -> bool:
        """Tell whether the elements are in pinned memory of this process, which they never are."""
        return False

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return self.data.is_cuda


def batch_sizes_of(packed: PackedSequence) -> tuple[int, ...]:
    """Return the batch sizes as numbers; read once if they were not made here."""
    known: tuple[int, ...] | None = packed.batch_sizes.__dict__.get("_numbers")
    if known is None:
        known = tuple(packed.batch_sizes.tolist())
        packed.batch_sizes.__dict__["_numbers"] = known
    return known


def _numbered(sizes: Iterable[int]) -> Tensor:
    """Return numbers as a tensor on the CPU that remembers them."""
    listed = tuple(int(size) for size in sizes)
    made = tensor(listed, dtype=None, device="cpu")
    made.__dict__["_numbers"] = listed
    return made


def _as_numbers(lengths: Lengths) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the permutation that undoes a permutation."""
    if permutation is None:
        return None
    numbers = function("arange")(permutation.numel(), device=permutation.device)
    return function("empty_like")(permutation).scatter_(0, permutation, numbers)  # type: ignore[no-any-return]


def pack_padded_sequence(
    input: Tensor, lengths: Lengths, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences of (t, n, ...), or (n, t, ...) with ``batch_first``, that have ``lengths``.

    They must be sorted by falling length; with ``enforce_sorted=False`` they are sorted first.
    """
    numbers = _as_numbers(lengths)
    steps, sequences = (input.shape[1], input.shape[0]) if batch_first else (input.shape[0], input.shape[1])
    if len(numbers) != sequences:
        raise ShapeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(numbers)} (batch_size={sequences})"
        )
    if not numbers or min(numbers) <= 0:
        raise ShapeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    sorted_indices = None
    order = sorted(range(sequences), key=lambda i: -numbers[i])
    if not enforce_sorted:
        sorted_indices = tensor(order, device=input.device)
    elif order != list(range(sequences)):
        raise ShapeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
            "do not need ONNX exportability."
        )
    falling = np.array([numbers[i] for i in order])
    if falling[0] > steps:
        raise ShapeError(f"Expected lengths of at most {steps} for input {input._meta}, got {falling[0]}")
    has_element = np.arange(falling[0])[:, None] < falling
    step, place = np.nonzero(has_element)
    sequence = np.array(order)[place]
    rows = sequence * steps + step if batch_first else step * sequences + sequence
    data = input.flatten(0, 1).index_select(0, tensor(rows, device=input.device))
    return PackedSequence(data, _numbered(has_element.sum(1).tolist()), sorted_indices)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Undo ``pack_padded_sequence``: return the padded sequences in their first order, and their lengths."""
    sizes = np.array(batch_sizes_of(sequence))
    steps, sequences = len(sizes), int(sizes[0])
    if total_length is not None and total_length < steps:
        raise ArgumentError(
            f"Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {steps}"
        )
    total = steps if total_length is None else total_length
    has_element = np.arange(sequences) < sizes[:, None]
    lengths = has_element.sum(0)
    step, place = np.nonzero(has_element)
    order = _order_of(sequence, sequences)
    number = order[place]
    rows = number * total + step if batch_first else step * sequences + number
    data = sequence.data
    padded: Tensor = function("full")(
        (total * sequences, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device
    )
    padded = padded.index_copy(0, tensor(rows, device=data.device), data)
    shape = (sequences, total) if batch_first else (total, sequences)
    in_order = np.empty_like(lengths)
    in_order[order] = lengths
    return padded.reshape(*shape, *data.shape[1:]), _numbered(in_order.tolist())


def _order_of(sequence: PackedSequence, count: int) -> Any:
    """Return the number that each packed sequence had before it was sorted."""
    indices = sequence.sorted_indices
    return np.arange(count) if indices is None else np.asarray(indices.tolist())


def pad_sequence(
    sequences: Tensor | Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:  # fmt: skip
    """Stack sequences of (length, ...) padded to the longest: (t, n, ...), or (n, t, ...) with ``batch_first``."""
    if not isinstance(sequences, Tensor) and not isinstance(sequences, Iterable):
        raise ArgumentTypeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"padding_side should be either 'right' or 'left', but got {padding_side}")
    listed = list(sequences.unbind(0)) if isinstance(sequences, Tensor) else list(sequences)
    if not listed:
        raise ArgumentError("pad_sequence: received an empty list of sequences")
    longest = max(sequence.shape[0] for sequence in listed)
    padded = []
    for sequence in listed:
        missing = longest - sequence.shape[0]
        around = (missing, 0) if padding_side == "left" else (0, missing)
        zeros = (0, 0) * (sequence.ndim - 1)
        padded.append(function("constant_pad_nd")(sequence, (*zeros, *around), padding_value) if missing else sequence)
    return function("stack")(padded, 0 if batch_first else 1)  # type: ignore[no-any-return]


def unpad_sequence(padded_sequences: Tensor, lengths: Lengths, batch_first: bool = False) -> list[Tensor]:
    """Undo ``pad_sequence``: return copies of the sequences as a list."""
    by_sequence = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [by_sequence[number, :length].clone() for number, length in enumerate(_as_numbers(lengths))]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences of (length, ...)."""
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Undo ``pack_sequence``: return the sequences as a list."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, cast(Lengths, lengths.__dict__["_numbers"]), batch_first=True)

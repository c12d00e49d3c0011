"""``Ragged``: how the ragged dimension of jagged tensors is divided, and what conversions need of it.

It is shared by all tensors that are computed from each other. Offsets are the server's; the client reads lengths only
where something needs numbers that it does not know, once.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from telegrad._functions.creation import tensor
from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.utils.weak import WeakTensorKeyDictionary
from telegrad_protocol.dtypes import int64
from telegrad_protocol.errors import ArgumentError

from .ragged_size import RaggedSize

_sizes = WeakTensorKeyDictionary()
"""The ragged size of each tensor of offsets, or of lengths, that nested tensors were made of."""


class Ragged:
    """Offsets, and lengths where there are gaps between the elements of a batch; ``count`` is the size of the batch.

    ``longest`` and ``shortest`` are lengths that the program gave, or that were read; None while nobody knows them.
    """

    __slots__ = ("_kept", "_listed", "_moved", "count", "lengths", "longest", "offsets", "shortest", "size")

    def __init__(
        self, offsets: Tensor, lengths: Tensor | None = None, shortest: int | None = None, longest: int | None = None,
        listed: list[int] | None = None,
    ) -> None:  # fmt: skip
        if offsets.ndim != 1 or (lengths is not None and lengths.shape != (offsets.shape[0] - 1,)):
            shown = "" if lengths is None else f" and lengths of {lengths._meta}"
            raise ArgumentError(f"nested: expected n + 1 offsets and n lengths, got offsets of {offsets._meta}{shown}")
        source = offsets if lengths is None else lengths
        if source not in _sizes:
            _sizes[source] = RaggedSize()
        self.size: RaggedSize = _sizes[source]
        self.offsets, self.lengths, self.count = offsets, lengths, int(offsets.shape[0]) - 1
        self.shortest, self.longest = shortest, longest
        self._listed = listed
        self._kept: dict[Any, Tensor] = {}
        self._moved: dict[Any, Ragged] = {}

    @classmethod
    def of_lengths(cls, listed: list[int], like: Tensor) -> Ragged:
        """Return what lengths that the client knows make, on the device of a tensor; one message, no round trip."""
        ends = tensor([0, *accumulate(listed)], dtype=int64, device=like.device)
        return cls(ends, None, min(listed), max(listed), listed)

    def to(self, device: Any) -> Ragged:
        """Return the same division, of the same ragged size, with its offsets on another device."""
        if device == self.offsets.device:
            return self
        moved = self._moved.get(device)
        if moved is None:
            offsets = self.offsets.to(device)
            lengths = None if self.lengths is None else self.lengths.to(device)
            _sizes[offsets if lengths is None else lengths] = self.size
            moved = Ragged(offsets, lengths, self.shortest, self.longest, self._listed)
            self._moved[device] = moved
            moved._moved[self.offsets.device] = self
        return moved

    def measures(self) -> Tensor:
        """Return the lengths as a tensor."""
        return self.lengths if self.lengths is not None else self._keep("lengths", self._differences)

    def _differences(self) -> Tensor:
        return self.offsets[1:] - self.offsets[:-1]

    def listed(self) -> list[int]:
        """Return the lengths as numbers, which one round trip reads where the client did not make them."""
        if self._listed is None:
            self._listed = self.measures().tolist()
        return self._listed

    def starts(self) -> list[int]:
        """Return where the elements of the batch begin."""
        if self.lengths is None:
            return [0, *accumulate(self.listed()[:-1])]
        read: list[int] = self.offsets.tolist()
        return read[:-1]

    def longest_length(self) -> int:
        """Return the largest length, from here on also as ``longest``."""
        if self.longest is None:
            self.longest = max(self.listed(), default=0)
        return self.longest

    def shortest_length(self) -> int:
        """Return the smallest length, from here on also as ``shortest``."""
        if self.shortest is None:
            self.shortest = min(self.listed(), default=0)
        return self.shortest

    def is_even(self) -> bool:
        """Whether the client knows that all lengths are the same."""
        return self.longest is not None and self.longest == self.shortest

    def _keep(self, key: Any, make: Any) -> Tensor:
        """Return a tensor that is made of the offsets once."""
        kept = self._kept.get(key)
        if kept is None:
            with no_grad():
                kept = self._kept[key] = make()
        return kept

    def places(self, total: int, padded: int) -> Tensor:
        """Return where each of ``total`` rows lies in a batch of sequences of ``padded`` rows.

        Rows that find no room there have the place behind all others. Computed on the server, without a round trip.
        """

        def make() -> Tensor:
            rows = function("arange")(total, device=self.offsets.device)
            sequences = function("searchsorted")(self.offsets[1:].contiguous(), rows, right=True)
            within = rows - self.offsets[sequences]
            places = function("where")(within < padded, sequences * padded + within, self.count * padded)
            return places.clamp(max=self.count * padded)  # type: ignore[no-any-return]

        return self._keep(("places", total, padded), make)

    def sources(self, total: int, padded: int) -> Tensor:
        """Return the row that each place of padded sequences shows, in bounds also where there is only padding."""

        def make() -> Tensor:
            within = function("arange")(padded, device=self.offsets.device)
            rows = (self.offsets[:-1].unsqueeze(1) + within).clamp(max=max(total - 1, 0))
            return rows.reshape(-1)  # type: ignore[no-any-return]

        return self._keep(("sources", total, padded), make)

    def filled(self, padded: int, at_least: int = 0) -> Tensor:
        """Return which places of padded sequences hold elements, or are among the first ``at_least``: (n, padded)."""

        def make() -> Tensor:
            within = function("arange")(padded, device=self.offsets.device)
            lengths = self.measures()
            return within < (lengths.clamp(min=at_least) if at_least else lengths).unsqueeze(1)  # type: ignore[no-any-return]

        return self._keep(("filled", padded, at_least), make)

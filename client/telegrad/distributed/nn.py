"""Communication that gradients flow through, under the names of ``torch.distributed.nn``: there is no group for it."""

from __future__ import annotations

from telegrad.distributed import no_group

_COMMUNICATION = "all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter scatter"
globals().update({name: no_group(f"nn.{name}") for name in _COMMUNICATION.split()})

"""What a tracer needs while a function runs: inputs, what is replaced meanwhile, and where the program is."""

from __future__ import annotations

"""Kernels that clients bring: modules of their code, their parameters, and launches that are checked.

What a kernel does with the addresses that it is given nobody checks; see docs/custom-kernels.md. A device that can run
such kernels has a ``KernelDriver``.
"""

from __future__ import annotations

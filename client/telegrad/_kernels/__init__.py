"""Kernels that the program brings: CUDA text, PTX and cubins, and those that Triton and Numba compile here.

They are compiled here or on the server and run there, on the session's tensors. ``activation`` puts our launchers into
Triton and Numba once a program imports these; nothing here imports them by itself.
"""

from __future__ import annotations

"""What programs put below autograd: ``__torch_dispatch__`` of modes and of subclasses.

``handler`` gets each operation that a mode or a class answers: it is lowered to PyTorch's operators (``lowerings``,
``aten_calls``), asked for (``asking``), and recorded for differentiation (``recording``), with derivatives that the
server tells as programs (``programs``). ``wrappers`` are subclasses that have no elements of their own,
``fake_tensors`` tensors that only have shapes. Nothing here is imported by a program that does none of this.
"""

from __future__ import annotations

"""``vmap``'s tensors and what operations do with them.

``tensor`` has the class of tensors that stand for one element of a batch each. ``handler`` gets each operation with
such a tensor: ``rules`` say how it is computed for the whole batch at once, ``decomposition`` takes apart what consists
of other operations, and ``fallback`` computes element by element. Programs without ``vmap`` import only ``tensor``.
"""

from __future__ import annotations

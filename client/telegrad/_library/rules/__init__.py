"""What programs register for operators beside kernels, and what it becomes: kernels for derivatives, casts and batches.

``fakes`` runs what tells the metas of results; ``aliases`` checks what an operator may return.
"""

from __future__ import annotations

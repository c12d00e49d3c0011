"""A small caching allocator: blocks, the heap that they lie in, accounts, and room that is made when there is none.

Needs no device, and imports nothing of the other folders.
"""

from __future__ import annotations

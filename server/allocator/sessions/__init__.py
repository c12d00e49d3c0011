"""What sessions may do to the cache that they share: limits, private pools, memory by address.

Knows sessions by number only.
"""

from __future__ import annotations

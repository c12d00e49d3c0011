"""Where a tensor's elements lie: addresses, orders of elements, and exchange with this process's memory."""

from __future__ import annotations

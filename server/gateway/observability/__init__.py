"""What an operator sees of the server: metrics, the log of failures and requests, figures of GPUs, traces.

It is told what happens and counts it; it decides nothing. docs/observability.md lists what it shows.
"""

from __future__ import annotations

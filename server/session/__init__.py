"""One client's session: its values, the order of its instructions, and its errors.

A session takes messages and returns messages. It owns no socket and knows nothing of HTTP.
"""

from __future__ import annotations

"""Everything that recognises what a program did before: sequences of launches, and backward passes.

``docs/replay.md`` explains it; when mechanisms learn, trust and give up is in ``server.replay_policy``.
"""

from __future__ import annotations

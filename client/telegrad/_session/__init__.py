"""Sessions: opening one, its queue of instructions, its answers, and what travels with instructions.

Also what belongs to a thread (the current session, its modes) and to the program (settings). Nothing here knows
tensors, nor what an operation does.
"""

from __future__ import annotations

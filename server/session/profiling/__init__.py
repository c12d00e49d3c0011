"""What looks on at a session: profiles, which note what it executes, and ranges, which are emitted around it.

Nothing of it is there while nobody asks for it. What is noted and emitted of one operation is in the engine's part.
"""

"""What a session does, noted while it is profiled: operations, passes, memory, launches, the work of GPUs.

Nothing of it is on the path of an operation otherwise: the Profiler key is no part of any key set, and no other
function stands in the place of an ordinary one. Of messages it knows the type of calls alone, and no sockets.
"""

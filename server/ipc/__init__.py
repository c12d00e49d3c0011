"""What gateway and worker say to each other: frames over Unix sockets, typed control requests, the worker's environment
and the form of the logs. Imports neither of the two processes.
"""

from __future__ import annotations

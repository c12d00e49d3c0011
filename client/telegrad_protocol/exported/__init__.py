"""Programs that are exported to a file and served: their description, their sizes, and the file's container.

Client and server both read and write them with what is here. Nothing in a file is executable: a program is a list of
operations of the table with their arguments.
"""

from __future__ import annotations

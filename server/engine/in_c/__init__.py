"""What the engine does in C where that is compiled: it hands the text of `server.native` the classes that it works on.

Each module says which functions of Python do the same, and do all that is unusual.
"""

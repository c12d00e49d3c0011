"""What a connection passes before anything of it is served: who may connect, how large and how slow a request may be.

Nothing here knows what is asked for.
"""

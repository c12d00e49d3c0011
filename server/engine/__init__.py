"""The engine: values, dispatcher, autograd, operations. Knows nothing of sessions, sockets or HTTP."""

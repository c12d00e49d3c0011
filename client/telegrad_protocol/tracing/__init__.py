"""What a profiled session notes, and what is made of it: rows of numbers, a timeline, a trace in Chrome's format.

The worker notes, the client and the gateway read. Nothing here knows a session, a socket or a device.
"""

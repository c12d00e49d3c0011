"""What direct channels between client and worker add: frames over Unix sockets, shared memory, and waiting awake."""

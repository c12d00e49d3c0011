"""What direct channels between client and worker add: frames over Unix sockets, and shared memory."""

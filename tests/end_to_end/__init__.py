"""The client library against real servers: gateway and worker in processes of their own, over loopback."""

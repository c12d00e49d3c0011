"""An hour of clients that connect, train, fail, and are killed, while nothing may grow: ``make soak``."""

"""What an operator sees of real servers: metrics, logs, alerts, dashboards and traces."""

from __future__ import annotations

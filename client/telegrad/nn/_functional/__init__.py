"""What ``nn.functional`` re-exports: functions that are compositions of operations, in a file per kind."""

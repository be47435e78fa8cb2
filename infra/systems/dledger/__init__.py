"""DLedger, RocketMQ's Raft library: a register server on it, its protocol, its topology."""

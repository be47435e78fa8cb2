"""Checkers of RocketMQ's controllers: their metadata, the SyncStateSet, the ids of brokers."""

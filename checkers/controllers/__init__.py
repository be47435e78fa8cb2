# SPDX-License-Identifier: Apache-2.0
"""Checkers of RocketMQ's controllers: their metadata, the SyncStateSet, the ids of brokers."""

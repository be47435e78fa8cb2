# SPDX-License-Identifier: Apache-2.0
"""DLedger, RocketMQ's Raft library: a register server on it, its protocol, its topology."""

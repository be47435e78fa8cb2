# SPDX-License-Identifier: Apache-2.0
"""RocketMQ: its servers, its protocol, its files, its topologies, foreign clients."""

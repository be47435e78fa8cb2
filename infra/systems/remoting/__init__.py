# SPDX-License-Identifier: Apache-2.0
"""The harness' own client of RocketMQ's remoting protocol: exact deadlines, one attempt, the raw answer code."""

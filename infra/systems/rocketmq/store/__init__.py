# SPDX-License-Identifier: Apache-2.0
"""Readers for the files of a stopped RocketMQ node. They verify every checksum and change nothing."""

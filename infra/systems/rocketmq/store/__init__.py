"""Readers for the files of a stopped RocketMQ node. They verify every checksum and change nothing."""

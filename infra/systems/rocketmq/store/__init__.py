"""What a stopped RocketMQ node left on its disk: readers of its files that verify every checksum and change nothing."""

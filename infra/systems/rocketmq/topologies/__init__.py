"""Which servers of RocketMQ run on which node, and with which configuration."""

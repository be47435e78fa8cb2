"""RocketMQ: its servers, its protocol, its files, its topologies, foreign clients."""

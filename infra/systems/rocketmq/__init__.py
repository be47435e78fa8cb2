"""RocketMQ: its servers, its protocol, its files, its topologies, clients that others wrote."""

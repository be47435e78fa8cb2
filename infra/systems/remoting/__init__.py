"""RocketMQ's remoting protocol, spoken by ourselves: exact deadlines, one attempt, the raw answer code."""

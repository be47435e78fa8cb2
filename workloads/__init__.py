"""The operations of clients and the guarantees to check. Layer 4."""

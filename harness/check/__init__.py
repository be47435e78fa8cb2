"""`harness check`: checks stored runs and foreign histories without a cluster."""

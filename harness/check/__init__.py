"""`harness check`: stored runs and histories of others, judged without a cluster."""

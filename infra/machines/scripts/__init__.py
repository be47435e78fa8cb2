"""Shell for the local backend: what runs inside fresh namespaces, without any Python. Read `switch.sh` first."""

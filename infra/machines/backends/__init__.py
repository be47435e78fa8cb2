"""Ways to get machines: `docker`, `local` (namespaces of this machine), `ssh` (machines that exist already)."""

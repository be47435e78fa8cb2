"""Systems under test: servers, topologies, protocols, clients. It uses `infra.machines`."""

"""Systems under test: servers, topologies, protocols, clients. Stands on `infra.machines`."""

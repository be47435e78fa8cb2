# SPDX-License-Identifier: Apache-2.0
"""Systems under test: servers, topologies, protocols, clients. It uses `infra.machines`."""

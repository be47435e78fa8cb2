# SPDX-License-Identifier: Apache-2.0
"""Ways to get machines: `docker`, `local` (namespaces of this machine), `ssh` (machines that exist already)."""

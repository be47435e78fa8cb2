# SPDX-License-Identifier: Apache-2.0
"""Coverage of stored runs: requests by answer, role of the server, active fault and phase, and the gaps."""

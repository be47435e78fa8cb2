# SPDX-License-Identifier: Apache-2.0
"""`harness check`: checks stored runs and foreign histories without a cluster."""

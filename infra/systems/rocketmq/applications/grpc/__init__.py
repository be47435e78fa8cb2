# SPDX-License-Identifier: Apache-2.0
"""The pinned jars of the gRPC client."""

# SPDX-License-Identifier: Apache-2.0
"""The clients that an application may use."""

from __future__ import annotations

from typing import Literal

Library = Literal["remoting", "remoting-proxy", "grpc-push", "grpc-simple"]
"""The client: of the remoting protocol, to the brokers or through a proxy; of gRPC, a push or a simple consumer."""

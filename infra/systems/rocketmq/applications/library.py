# SPDX-License-Identifier: Apache-2.0
"""The clients that an application may use."""

from __future__ import annotations

from typing import Literal

Library = Literal["remoting", "lite-pull", "remoting-proxy", "grpc-push", "grpc-simple"]
"""The client: of the remoting protocol, a push consumer or one that polls, or a push consumer through a proxy; of gRPC,
a push or a simple consumer.
"""

# SPDX-License-Identifier: Apache-2.0
"""The clients that an application may use."""

from __future__ import annotations

from typing import Literal

Library = Literal["remoting", "lite-pull", "remoting-proxy", "grpc-push", "grpc-simple", "native"]
"""The client: of the remoting protocol, a push consumer or one that polls, or a push consumer through a proxy; of gRPC,
a push or a simple consumer; or a push consumer of librocketmq (C++).
"""

GrpcClient = Literal["5.0.6", "5.0.8", "5.1.0", "5.2.0"]
"""The versions of the gRPC client (`rocketmq-client-java`, of apache/rocketmq-clients) that are pinned."""

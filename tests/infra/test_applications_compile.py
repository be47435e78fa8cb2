# SPDX-License-Identifier: Apache-2.0
"""The harness' Java application is compiled with the client of every version that it is to run with."""

from __future__ import annotations

from typing import get_args

import pytest

from infra.systems.rocketmq.applications.java import JavaProgram
from infra.systems.rocketmq.applications.library import GrpcClient

VERSIONS = ("5.1.0", "5.2.0", "5.3.3", "5.4.0", "5.5.0")
"""Those whose jars other tests need, too. 5.1.1 has the client of 5.1.0 but for corrections."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.slow
def test_the_application_compiles_with_the_client_of_each_version(version: str) -> None:
    """A constructor that 5.1 does not have ended every run there at its start, and no test with 5.5.0 can see that."""
    JavaProgram(version, "remoting").prepare()


@pytest.mark.parametrize("version", get_args(GrpcClient))
@pytest.mark.slow
def test_the_application_compiles_with_each_version_of_the_grpc_client(version: GrpcClient) -> None:
    JavaProgram("5.5.0", "grpc-push", version).prepare()

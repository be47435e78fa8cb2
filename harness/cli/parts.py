# SPDX-License-Identifier: Apache-2.0
"""Common parts of several commands."""

from __future__ import annotations

import click

from harness.values import FAIL_ON, STORE

store_option = click.option("--store", **STORE)
fail_on_option = click.option("--fail-on", **FAIL_ON)

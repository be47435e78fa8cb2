# SPDX-License-Identifier: Apache-2.0
"""`python -m harness` is `python -m rocketmq_harness`, which first looks for packages that hide ours."""

import runpy

runpy.run_module("rocketmq_harness", run_name="__main__", alter_sys=True)

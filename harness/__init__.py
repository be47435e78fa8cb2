# SPDX-License-Identifier: Apache-2.0
"""The run: generators, interpreter, fault schedule, lifecycle, command line.

Layer 3. It does not know workloads and nemeses: they are plug-ins, found through entry points.
"""

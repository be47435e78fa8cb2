# SPDX-License-Identifier: Apache-2.0
"""The parts of a run: looks up plug-ins by the names in a plan and creates them."""

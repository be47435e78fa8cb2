# SPDX-License-Identifier: Apache-2.0
"""`harness batch`: thousands of histories, checked on Spark by the functions of `harness check`."""

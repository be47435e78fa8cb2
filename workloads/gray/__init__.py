# SPDX-License-Identifier: Apache-2.0
"""Gray release by queue isolation, as a platform on released servers: which clients send to which queues, which read
them, and how a client changes its colour.

The platform is itself under test. `scheme` is either the published scheme, or one with its faults corrected.
"""

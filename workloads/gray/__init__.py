"""Gray release by queue isolation, as a platform on released servers: who sends to which queues, who reads them, and
how a client changes its colour.

The platform is itself under test. `scheme` says how it works: as the published scheme does, or with its faults cured.
"""

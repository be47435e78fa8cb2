"""For all tests: Hypothesis must not take a busy machine for a slow function."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")

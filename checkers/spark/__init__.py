"""Histories by the thousand on Spark (docs/batch.md): what is to be done (`units`), in which portions (`portions`), who
does it (`job`), where it lies (`files`). What a check *is* comes from outside, as a function of a portion.

Nothing outside of this folder imports Spark, which is the extra `spark`.
"""

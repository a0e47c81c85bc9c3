"""Pure functions on arrays, run on workers: reading, counting, inference, learning.

Nothing here imports Dask, pgmpy or pandas, keeps state of its own or looks at a clock.
"""

"""The benchmark: each figure measured against its peer in the same run, printed as a ratio.

May import everything. Data comes in as the demo model; it goes out as a table and ``bench/out/latest.json``. No test
asserts on it.
"""

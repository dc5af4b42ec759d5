"""Structured output: which schemas are accepted, how they are compiled, and the check of the finished document.

May import: ``engine.models`` and below. A ``ResponseFormat`` comes in; a ``LaneConstraint`` goes out to each lane.
"""

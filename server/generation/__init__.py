"""The way of a request to a model that every API shares: policy, load, queue, run, reports; and how its deltas arrive.

May import: the engine and what lies beside it in ``server``, no API. An endpoint says what it reads and how its answer
is shaped (``endpoint.py``); ``flow.py`` takes it there.
"""

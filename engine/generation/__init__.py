"""Scheduler and lanes, sampler, prompts and text stream: from a request to typed deltas.

May import: ``engine.models``, ``engine.steering``, ``engine.monitor`` and below. Data comes in as
``GenerationRequest`` and goes out as ``Delta``.
"""

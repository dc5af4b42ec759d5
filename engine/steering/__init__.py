"""Dial, clamp, plan, hash, report, hazards and claims; and the desk that holds the live steering.

May import: ``engine.saes``, ``engine.documents``, ``engine.library`` and below. Data comes in as documents, requests
and attachments, and goes out as frozen values; only the desk keeps state.
"""

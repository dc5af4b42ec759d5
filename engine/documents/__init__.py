"""Profile, cluster and circuit documents: reading, lossless export, evidence rungs, verdicts against attached SAEs.

May import: ``engine.library`` and below; never torch. Data comes in as raw bytes or JSON values and goes out as frozen
documents, bindings and verdicts; nothing here keeps state.
"""

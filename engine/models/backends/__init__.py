"""What runs a model: transformers and llama.cpp behind one interface that states its capabilities.

May import: ``engine.models.inspection``, ``engine.models.hardware`` and below. Token ids come in, logits and the
residual stream's values go out.
"""

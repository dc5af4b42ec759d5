"""Sparse autoencoders: source formats on disk become one canonical in-memory SAE, whatever wrote them.

May import: ``engine.errors``, ``engine.config``, ``engine.library``. A folder or file comes in through
``formats.load_sae`` and goes out as :class:`engine.saes.sae.Sae`; figures about it come from ``checks``.
"""

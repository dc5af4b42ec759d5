"""Model names and states, files on disk, the hub, the machine's GPUs, and the backends that run a model.

``registry`` knows what is loaded; ``load_plan`` decides how a model is opened, over ``backends``, ``inspection``,
``hub`` and ``hardware``. May import: ``engine.library`` and below. Data comes in as token ids and goes out as logits;
the KV layout is private to a backend.
"""

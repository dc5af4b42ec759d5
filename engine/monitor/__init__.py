"""Reading along: live activations with history and statistics, and the activations a request asks back.

May import: ``engine.saes``, ``engine.library``, ``engine.errors``, ``engine.events``. The scheduler says which rows a
pass holds and takes observers for it (``live.LiveMonitor``, ``capture.Capture``); values and events go out.
"""

"""The API described: ``/openapi.json``, made from the routes themselves, and the reference page made from it.

A route says what it takes and gives with the decorator ``describe`` (see ``describe.py``, which shows how); everything
else is read from the app's own map of routes and from the models that check bodies and queries.
"""

"""Tools: what a request offers a model to call, the wires in which models write calls, and what holds them to a form.

May import: text and constraints of this room and ``engine.models``. A :class:`Tools` comes in with a request; calls go
out as pieces of the text stream.
"""

"""What a person does with models: import, inspect, load, unload, delete.

It spans the library, ``engine.models`` and the scheduler, which none of them may import together. Calls of a face
come in through :class:`engine.actions.models.actions.ModelActions`; rows, events and futures go out.
"""

"""What the window and the server may know of the engine's rooms, beside the engine itself, its errors and its events.

May import: every room. Nothing in the engine imports it, so a room may be cut anew without a face changing.
"""

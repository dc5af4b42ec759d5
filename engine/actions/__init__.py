"""What spans rooms: load, unload and import of models; attaching SAEs; profiles, clusters and circuits.

May import: every room of the engine. Data comes in as calls from a face and goes out as library rows, events and
futures.
"""

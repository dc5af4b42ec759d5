"""Managing what steers: profiles, clusters with their dial, circuits with their claims.

May import: every room of the engine. Data comes in as calls from a face and goes out as frozen results, library rows, a
new live plan and events; requests do not pass through here.
"""

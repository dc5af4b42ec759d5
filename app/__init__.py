"""The composition root: settings, paths, command line, start order, the demo model, quitting and crashes.

May import: everything (``ui``, ``server``, ``engine``); nothing imports it.
Data comes in as command-line arguments, environment and the settings file; it goes out as a running window or server.
"""

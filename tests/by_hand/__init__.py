"""The program used by hand: a real window on a virtual screen with a window manager, a real mouse, real keys.

``make by-hand`` runs it. Every event comes from xdotool through the X server; the program is only asked where things
stand, by a thread that looks and never touches. Pictures and a report lie in ``.data/by-hand/``.
"""

"""What ``make screenshots`` renders: one module per area of the window, each with its scenes.

To add an area, add a module here with ``SCENES: tuple[Scene, ...]``; it is found by itself. A scene is a function from a
:class:`tests.ui.scenes.studio.Studio` to pictures. It makes what it needs (``studio.load_model()``,
``studio.attach_demo_set()``; both do nothing the second time), so that it can be rendered alone. Scenes of a module share
one studio, in the order of ``SCENES``; each module begins with a fresh one: no model loaded, nothing attached.
"""

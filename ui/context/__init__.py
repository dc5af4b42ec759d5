"""What the window gives to every page: services, one hand on the steering, the demo's installation, the way elsewhere.

May import: ``ui.bridge``, ``ui.kit`` and ``engine``. A page takes it as one
:class:`ui.context.page_context.PageContext`.
"""

"""Where kinds of engine and routing policies of others are found (EN-1, RT-57).

Empty: a distribution that brings one puts a module into a ``pair/plugins``
folder of its own, without an ``__init__.py``.
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []

"""The log: levels by namespace, lines as JSON in a file and as text on standard output (OP-27 to OP-34).

Modules take ``Logger`` from here and know nothing else of it. ``observer`` is
what ``twistd`` is told to use; ``configure`` makes the service that writes.
"""

from pair.logs.levels import Levels
from pair.logs.logger import Logger
from pair.logs.service import LogService, configure, observer

__all__ = ["Levels", "LogService", "Logger", "configure", "observer"]

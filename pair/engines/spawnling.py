"""The shim between us and an engine: a session of its own, no stray descriptors, then exec (EN-22).

Run by its path with the standard library alone: ``python -I -S spawnling.py
PROGRAM ARGUMENT…``. It waits for one byte on its standard input, which comes
when the record of this process is stored (EN-23). End of input instead means
that PAIR is gone or thought better of it, and then nothing is started.
"""

import os
import sys


def main(argv: list[str]) -> int:
    """Become ``argv``; only a failure returns."""
    os.setsid()
    if not os.read(0, 1):
        return 0
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is meant
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

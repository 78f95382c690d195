"""All benchmarks in turn, or those named: ``python -m benchmarks [NAME ...] [--json] [--quick]``."""

from __future__ import annotations

import argparse
import subprocess
import sys

NAMES = (
    *("chunk", "chunk1000", "req", "lat", "ttfb", "mem", "cancel", "peers", "scale", "body"),
    *("tls", "mem_tls", "burst", "frozen", "scale_feeds", "idle", "news"),
    *("trust", "pairing", "sync"),
)


def run() -> int:
    """Run them, each in a process of its own.

    Returns:
        1 when one of them could not be measured.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[[], *NAMES], help="which; without a name, all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    flags = [f"--{flag}" for flag in ("json", "quick") if getattr(options, flag)]
    failed = [
        name
        for name in options.name or NAMES
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *flags], check=False).returncode
    ]
    if failed:
        print(f"Could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run())

"""Which lines of the specification no test names (QA-4). A report: it never fails.

python tools/spec.py
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

ID = r"\b[A-Z]{2}-\d+"
DEFINED = re.compile(rf"^(?:[-*] |\| )\**({ID})\b(.*)")
NAMED = re.compile(rf"({ID})(?: to ({ID}))?")
LATER = "Later stages"
TESTS = "Tests that must exist"


def named(text: str) -> set[str]:
    """The ids in ``text``; ``OP-45 to OP-48`` names all four."""
    found = set()
    for first, last in NAMED.findall(text):
        area, start = first.split("-")
        end = last.split("-")[1] if last.startswith(f"{area}-") else start
        found |= {f"{area}-{number}" for number in range(int(start), int(end) + 1)}
    return found


def sections(page: str) -> list[tuple[str, list[str]]]:
    """The headings of a page with the lines beneath each."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in page.splitlines():
        if line.startswith("#"):
            parts.append((line.lstrip("# "), []))
        else:
            parts[-1][1].append(line)
    return parts


def main() -> None:
    """Print the report, page by page."""
    tests = set()
    for path in (ROOT / "pair" / "test").rglob("*.py"):
        tests |= named(path.read_text())
    for page in sorted((ROOT / "docs" / "spec").glob("*.md")):
        ids: list[str] = []
        lines: list[str] = []
        for heading, content in sections(page.read_text()):
            if heading.startswith(LATER):
                continue
            for line in content:
                defined = DEFINED.match(line)
                if defined and "withdrawn" not in defined[2][:40]:
                    ids.append(defined[1])
                if heading == TESTS and re.match(r"\d+\. ", line) and not named(line) & tests:
                    lines.append(line)
        missing = [each for each in ids if each not in tests]
        if not ids and not lines:
            continue
        print(f"{page.name}: {len(ids) - len(missing)} of {len(ids)} ids are named by a test")
        if missing:
            print(f"  not named: {' '.join(missing)}")
        for line in lines:
            print(f"  no test: {line}")


if __name__ == "__main__":
    main()

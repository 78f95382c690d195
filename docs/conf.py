"""How the documentation is built: ``make docs``."""

import sys
from pathlib import Path

import pair

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "PAIR"
author = "The PAIR developers"
copyright = f"{author}; Apache-2.0"
version = release = pair.__version__

extensions = ["from_code"]
# The specification is Markdown, and is read in the repository.
exclude_patterns = ["_build", "spec"]
nitpicky = True

html_theme = "furo"
html_title = f"PAIR {release}"
html_copy_source = False

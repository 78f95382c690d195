"""Tests of PAIR, run by ``python -m twisted.trial pair``."""

import os
import tempfile

from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(os.path.join(tempfile.gettempdir(), "pair-hypothesis"))

# One profile for all: nothing is written into the checkout, no timing decides, and CI draws the same cases each time.
settings.register_profile("pair", database=None, deadline=None, derandomize=bool(os.environ.get("CI")))
# The long counts of `make faults` (QA-14).
settings.register_profile("faults", settings.get_profile("pair"), derandomize=False, max_examples=2000)
settings.load_profile("faults" if os.environ.get("PAIR_FAULTS") else "pair")

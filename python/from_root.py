"""Builds the project of the folder above, which has the library."""

import os

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from scikit_build_core.build import *  # noqa: E402, F403

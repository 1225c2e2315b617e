# SPDX-License-Identifier: Apache-2.0
"""Paths of the modules under test: the host's, and the guest's."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(HERE, "guest"), os.path.join(ROOT, "tools")]

# SPDX-License-Identifier: Apache-2.0
"""Paths of the modules that make fresh systems."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "machines"))

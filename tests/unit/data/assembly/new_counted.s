# SPDX-License-Identifier: Apache-2.0
# new_ways.s with a detour that increments the reference count in memory.
.set COUNTED, 1
.include "new_ways.s"

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modes in which a process was traced, and when, if they changed (struct snapshot_change).
 * Otherwise nothing is printed.
 */
#pragma once

#include <stdio.h>

#include "snapshot/snapshot.h"

/*
 * Prints "Modes: exact 0.0-12.3 s; census 12.3-20.1 s (…)" and a line that says which time the
 * figures cover.
 */
void modes_print(FILE *out, const struct snapshot_meta *meta);
/*
 * '"modes": [{"mode": …, "since_ns": …, "sample_bytes": …, "cost": …, "budget": …}, …],
 * "modes_dropped": …, '
 */
void modes_json(FILE *out, const struct snapshot_meta *meta);

/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of struct snapshot_meta that a profile stores, with their keys. */
#ifndef TRACER_PPROF_PPROF_META_FIELDS_H
#define TRACER_PPROF_PPROF_META_FIELDS_H

#include <stddef.h>

/*
 * When a field is written. KNOWN: if it is not 0 or ""; OF_SEVERAL: the same, for one of several
 * processes.
 */
enum when { ALWAYS, KNOWN, OF_SEVERAL };

struct meta_field {
	const char *key;
	size_t offset, size;
	int text; /* otherwise a native unsigned number (int counts as one) */
	enum when when;
};

/* The first one identifies a process. */
extern const struct meta_field pprof_meta_fields[];
extern const size_t pprof_meta_field_count;

#endif

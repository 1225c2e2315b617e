/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoder of jitdump files (tools/perf/Documentation/jitdump-specification.txt), version 1,
 * little-endian. Pure, and incremental: bytes are taken as they come. Of a record only what names
 * code is kept; the code itself is skipped.
 */
#ifndef TRACER_PERFMAP_JITDUMP_H
#define TRACER_PERFMAP_JITDUMP_H

#include <stddef.h>
#include <stdint.h>

#include "perfmap/text.h"

#define JITDUMP_HEAD_BYTES 72u /* the longest head of a record that is looked at */

struct jitdump_code {
	uint64_t address, bytes;
	uint64_t moved_from; /* 0: new code; else it lay there so far, and name is NULL */
	const char *name;    /* not terminated */
	size_t name_bytes;
};

/* Anything but 0 ends the reading and is returned. */
typedef int (*jitdump_code_fn)(void *context, const struct jitdump_code *code);

/* Zero-initialise. */
struct jitdump {
	uint64_t records; /* that name or move code */
	uint64_t
		/*
		 * of those, that say nothing: no name, no bytes, beyond the address space or their
		 * record
		 */
		refused;
	uint64_t cut; /* names cut at PERFMAP_NAME_MAX */
	int header_seen;
	uint64_t skip; /* bytes of the record that are of no interest */
	size_t held;
	unsigned char head[JITDUMP_HEAD_BYTES + PERFMAP_NAME_MAX];
};

/*
 * 0; -EPROTO no jitdump, or one that cannot be followed any further; or what the callback returned.
 */
int jitdump_read(struct jitdump *jitdump, const void *data, size_t bytes, jitdump_code_fn code,
		 void *context);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoder and encoder of jitdump files (tools/perf/Documentation/jitdump-specification.txt),
 * version 1, little-endian. Pure. The decoder is incremental: input may be split at any byte. Only
 * the part of a record that names code is kept; the code itself is skipped.
 *
 * A writer that forks with records in its buffer (CPython) leaves a part of a record in the file:
 * parent and child share the offset, both write the buffer, and it begins where the last write has
 * ended, within a record. So records are checked, and after bytes that are none the next LOAD is
 * searched for.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "object/perfmap/text.h"
#include "util/buffer.h"

#define JITDUMP_HEAD_BYTES 72u /* the longest record head that is read */
#define JITDUMP_HEAD_MAX   (JITDUMP_HEAD_BYTES + PERFMAP_NAME_MAX)

struct jitdump_code {
	uint64_t address, bytes;
	uint64_t moved_from; /* 0: new code; else its previous address, and name is NULL */
	uint64_t time_ns;    /* when the writer says that it happened, on its clock (monotonic) */
	const char *name;    /* not terminated */
	size_t name_bytes;
};

/*
 * Whose jitdump is this by its path, "…/jit-PID.dump"; -1: it is none. Its writer maps a page of it
 * executable.
 */
pid_t jitdump_writer(const char *path);
/* Anything but 0 ends the reading and is returned. */
typedef int (*jitdump_code_fn)(void *context, const struct jitdump_code *code);

/* Zero-initialise. */
struct jitdump {
	uint64_t records; /* that name or move code */
	/* invalid ones: no name, no bytes, or beyond the address space */
	uint64_t refused;
	uint64_t cut;  /* names cut at PERFMAP_NAME_MAX */
	uint64_t torn; /* places where no record begins, and one should */
	int lost;      /* since the last of them no record has come */
	int header_seen;
	uint32_t pid;  /* the writer's, as it says */
	uint64_t skip; /* bytes of the record to skip */
	size_t held;
	unsigned char head[JITDUMP_HEAD_MAX];
};

/* 0; -EPROTO: not a jitdump; or what the callback returned. */
int jitdump_read(struct jitdump *jitdump, const void *data, size_t bytes, jitdump_code_fn code,
		 void *context);

/* Appends the header of a jitdump that process pid writes. 0, -ENOMEM. */
int jitdump_header_put(struct buffer *out, pid_t pid, uint64_t time_ns);
/*
 * Appends a record of new code in process pid, whose main thread stands for the one that made it:
 * head, name and NUL; code->bytes bytes of code must follow. index: a different one for each record
 * of a file. 0; -E2BIG: more than a record can have; -ENOMEM.
 */
int jitdump_load_put(struct buffer *out, pid_t pid, uint64_t index,
		     const struct jitdump_code *code);

/* SPDX-License-Identifier: Apache-2.0 */
#include "perfmap/jitdump.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define MAGIC   0x4a695444u
#define VERSION 1u

enum { RECORD_LOAD = 0, RECORD_MOVE = 1 };

struct file_header {
	uint32_t magic, version, total_size, machine, pad, pid;
	uint64_t timestamp, flags;
};

struct record_prefix {
	uint32_t id, total_size;
	uint64_t timestamp;
};

struct record_load {
	struct record_prefix prefix;
	uint32_t pid, tid;
	uint64_t vma, code_addr, code_size, code_index;
};

struct record_move {
	struct record_prefix prefix;
	uint32_t pid, tid;
	uint64_t vma, old_code_addr, new_code_addr, code_size, code_index;
};

_Static_assert(sizeof(struct file_header) == 40 && sizeof(struct record_load) == 56 &&
		       sizeof(struct record_move) == 64 &&
		       sizeof(struct record_move) <= JITDUMP_HEAD_BYTES,
	       "the specification's layout");

pid_t jitdump_writer(const char *path)
{
	const char *name = strrchr(path, '/');
	unsigned int pid;
	int end = 0;

	return name && sscanf(name, "/jit-%9u.dump%n", &pid, &end) == 1 && end && !name[end]
		       ? (pid_t)pid
		       : -1;
}

static int range_is_bad(uint64_t address, uint64_t bytes)
{
	return !bytes || address + bytes < address;
}

static int load_take(struct jitdump *jitdump, size_t size, jitdump_code_fn code, void *context)
{
	struct record_load load;
	struct jitdump_code found = {.name = (const char *)jitdump->head + sizeof(load)};
	int cut;

	if (size < sizeof(load))
		return jitdump->refused++, 0;
	memcpy(&load, jitdump->head, sizeof(load));
	found.address = load.code_addr;
	found.bytes = load.code_size;
	found.time_ns = load.prefix.timestamp;
	found.name_bytes = strnlen(found.name, jitdump->held - sizeof(load));
	/*
	 * No NUL in the buffered part: the name continues beyond it, or the record ends within the
	 * name.
	 */
	cut = found.name_bytes == jitdump->held - sizeof(load);
	if (range_is_bad(found.address, found.bytes) || !found.name_bytes ||
	    (cut && size == jitdump->held))
		return jitdump->refused++, 0;
	if (found.name_bytes > PERFMAP_NAME_MAX)
		found.name_bytes = PERFMAP_NAME_MAX;
	jitdump->cut += cut;
	return code(context, &found);
}

static int move_take(struct jitdump *jitdump, size_t size, jitdump_code_fn code, void *context)
{
	struct record_move move;
	struct jitdump_code found = {0};

	if (size < sizeof(move))
		return jitdump->refused++, 0;
	memcpy(&move, jitdump->head, sizeof(move));
	found.address = move.new_code_addr;
	found.bytes = move.code_size;
	found.time_ns = move.prefix.timestamp;
	found.moved_from = move.old_code_addr;
	if (range_is_bad(found.address, found.bytes) ||
	    range_is_bad(found.moved_from, found.bytes) || !found.moved_from)
		return jitdump->refused++, 0;
	return code(context, &found);
}

/* Size of the record whose head is buffered; 0: not known yet; -EPROTO. */
static int64_t record_size(const struct jitdump *jitdump)
{
	struct file_header header;
	struct record_prefix prefix;

	if (!jitdump->header_seen) {
		if (jitdump->held < sizeof(header))
			return 0;
		memcpy(&header, jitdump->head, sizeof(header));
		if (header.magic != MAGIC || header.version != VERSION ||
		    header.total_size < sizeof(header))
			return error_set(-EPROTO, "not a jitdump of version 1");
		return header.total_size;
	}
	if (jitdump->held < sizeof(prefix))
		return 0;
	memcpy(&prefix, jitdump->head, sizeof(prefix));
	if (prefix.total_size < sizeof(prefix))
		return error_set(-EPROTO, "corrupt jitdump: a record of %u bytes",
				 prefix.total_size);
	return prefix.total_size;
}

static int record_take(struct jitdump *jitdump, size_t size, jitdump_code_fn code, void *context)
{
	struct record_prefix prefix;
	int err = 0;

	if (jitdump->header_seen) {
		memcpy(&prefix, jitdump->head, sizeof(prefix));
		jitdump->records += prefix.id == RECORD_LOAD || prefix.id == RECORD_MOVE;
		if (prefix.id == RECORD_LOAD)
			err = load_take(jitdump, size, code, context);
		else if (prefix.id == RECORD_MOVE)
			err = move_take(jitdump, size, code, context);
	}
	jitdump->header_seen = 1;
	jitdump->skip = size - jitdump->held;
	jitdump->held = 0;
	return err;
}

int jitdump_read(struct jitdump *jitdump, const void *data, size_t bytes, jitdump_code_fn code,
		 void *context)
{
	const unsigned char *at = data;

	while (bytes) {
		int64_t size = record_size(jitdump);
		/* Buffers the prefix first, then the part of the record that is needed. */
		size_t want = size                   ? sizeof(jitdump->head)
			      : jitdump->header_seen ? sizeof(struct record_prefix)
						     : sizeof(struct file_header);
		size_t taken;
		int err;

		if (size < 0)
			return (int)size;
		if (jitdump->skip) {
			taken = jitdump->skip < bytes ? jitdump->skip : bytes;
			jitdump->skip -= taken;
		} else {
			if (size && (uint64_t)size < want)
				want = size;
			taken = want - jitdump->held < bytes ? want - jitdump->held : bytes;
			memcpy(jitdump->head + jitdump->held, at, taken);
			jitdump->held += taken;
		}
		at += taken;
		bytes -= taken;
		/*
		 * The size is known once the prefix is complete. A record is processed when its
		 * needed part is buffered.
		 */
		size = jitdump->skip ? 0 : record_size(jitdump);
		if (size < 0)
			return (int)size;
		if (size && jitdump->held == ((uint64_t)size < sizeof(jitdump->head)
						      ? (size_t)size
						      : sizeof(jitdump->head))) {
			err = record_take(jitdump, size, code, context);
			if (err)
				return err;
		}
	}
	return 0;
}

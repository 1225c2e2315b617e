/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/jitdump.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "util/arch.h"
#include "util/error.h"

#define MAGIC   0x4a695444u
#define VERSION 1u

enum { RECORD_LOAD, RECORD_MOVE, RECORD_DEBUG, RECORD_CLOSE, RECORD_UNWINDING };

#define PADDING_MAX 64u /* of a record; some writers align them */

struct jitdump_file_header {
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

struct record_debug {
	struct record_prefix prefix;
	uint64_t code_addr, entries;
};

#define DEBUG_ENTRY_MIN 17u /* address, line, discriminator, an empty name */

struct record_unwinding {
	struct record_prefix prefix;
	uint64_t unwinding_size, eh_frame_hdr_size, mapped_size;
};

_Static_assert(sizeof(struct jitdump_file_header) == 40 && sizeof(struct record_load) == 56 &&
		       sizeof(struct record_move) == 64 && sizeof(struct record_debug) == 32 &&
		       sizeof(struct record_unwinding) == 40 &&
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

static bool range_is_bad(uint64_t address, uint64_t bytes)
{
	return !bytes || address + bytes < address;
}

struct jitdump_record {
	const unsigned char *data;
	size_t size; /* of the whole record */
	size_t held; /* bytes of it that are buffered, at data */
};

static int load_take(struct jitdump *jitdump, const struct jitdump_record *record,
		     jitdump_code_fn code, void *context)
{
	struct record_load load;
	struct jitdump_code found = {.name = (const char *)record->data + sizeof(load)};

	memcpy(&load, record->data, sizeof(load));
	found.address = load.code_addr;
	found.bytes = load.code_size;
	found.time_ns = load.prefix.timestamp;
	found.name_bytes = strnlen(found.name, record->held - sizeof(load));
	if (range_is_bad(found.address, found.bytes) || !found.name_bytes)
		return jitdump->refused++, 0;
	/* No NUL in the buffered part: the name continues beyond it. */
	jitdump->cut += found.name_bytes == record->held - sizeof(load) ||
			found.name_bytes > PERFMAP_NAME_MAX;
	if (found.name_bytes > PERFMAP_NAME_MAX)
		found.name_bytes = PERFMAP_NAME_MAX;
	return code(context, &found);
}

static int move_take(struct jitdump *jitdump, const struct jitdump_record *record,
		     jitdump_code_fn code, void *context)
{
	struct record_move move;
	struct jitdump_code found = {0};

	memcpy(&move, record->data, sizeof(move));
	found.address = move.new_code_addr;
	found.bytes = move.code_size;
	found.time_ns = move.prefix.timestamp;
	found.moved_from = move.old_code_addr;
	if (range_is_bad(found.address, found.bytes) ||
	    range_is_bad(found.moved_from, found.bytes) || !found.moved_from)
		return jitdump->refused++, 0;
	return code(context, &found);
}

/* Size of the record that begins with these bytes; 0: not known yet; -EPROTO: no jitdump. */
static int64_t record_size(const struct jitdump *jitdump, const unsigned char *data, size_t held)
{
	struct jitdump_file_header header;
	struct record_prefix prefix;

	if (jitdump->header_seen) {
		if (held < sizeof(prefix))
			return 0;
		memcpy(&prefix, data, sizeof(prefix));
		return prefix.total_size < sizeof(prefix) ? sizeof(prefix) : prefix.total_size;
	}
	if (held < sizeof(header))
		return 0;
	memcpy(&header, data, sizeof(header));
	if (header.magic != MAGIC || header.version != VERSION ||
	    header.total_size < sizeof(header))
		return error_set(-EPROTO, "not a jitdump of version 1");
	return header.total_size;
}

/* Do name and code fill the record? Some writers leave the code out, some align records. */
static int load_fits(const struct jitdump_record *record)
{
	struct record_load load;
	size_t fixed = sizeof(load) + 1, name_bytes, rest;

	if (record->size < fixed)
		return 0;
	if (record->held < sizeof(load))
		return 1;
	memcpy(&load, record->data, sizeof(load));
	if (load.code_size > record->size - fixed &&
	    record->size - fixed > PERFMAP_NAME_MAX + PADDING_MAX)
		return 0;
	name_bytes =
		strnlen((const char *)record->data + sizeof(load), record->held - sizeof(load));
	if (name_bytes == record->held - sizeof(load))
		return record->held < record->size;
	rest = record->size - fixed - name_bytes;
	if (rest == load.code_size)
		return 1;
	if (!name_bytes || range_is_bad(load.code_addr, load.code_size))
		return 0;
	return (!rest || record->size % 8 == 0) &&
	       (rest < 8 || (rest > load.code_size && rest - load.code_size < PADDING_MAX));
}

/*
 * Can these bytes be a record? What its fields say of its length must agree with its size. It is
 * asked as soon as the prefix is there: a size that is none would be waited for in vain.
 */
static int record_fits(const struct jitdump_record *record)
{
	struct record_prefix prefix;
	struct record_debug debug;
	struct record_unwinding unwinding;

	memcpy(&prefix, record->data, sizeof(prefix));
	if (prefix.total_size < sizeof(prefix))
		return 0;
	switch (prefix.id) {
	case RECORD_LOAD:
		return load_fits(record);
	case RECORD_MOVE:
		return record->size >= sizeof(struct record_move) &&
		       record->size < sizeof(struct record_move) + PADDING_MAX;
	case RECORD_DEBUG:
		if (record->held < sizeof(debug))
			return record->size >= sizeof(debug);
		memcpy(&debug, record->data, sizeof(debug));
		return debug.entries <= (record->size - sizeof(debug)) / DEBUG_ENTRY_MIN;
	case RECORD_CLOSE:
		return record->size < sizeof(prefix) + PADDING_MAX;
	case RECORD_UNWINDING:
		if (record->held < sizeof(unwinding))
			return record->size >= sizeof(unwinding);
		memcpy(&unwinding, record->data, sizeof(unwinding));
		return unwinding.unwinding_size <= record->size - sizeof(unwinding);
	}
	return 0;
}

/*
 * After a part of a record only a LOAD is recognised, and by all that it says: 1, 0 it is none, -1
 * more bytes are needed.
 */
static int load_begins(const struct jitdump *jitdump, const unsigned char *data, size_t held)
{
	struct record_load load;

	if (held < sizeof(load))
		return -1;
	memcpy(&load, data, sizeof(load));
	if (load.prefix.id != RECORD_LOAD || load.pid != jitdump->pid || !load.code_size ||
	    load.prefix.total_size < sizeof(load) + 2 ||
	    load.code_size > load.prefix.total_size - sizeof(load) - 2)
		return 0;
	size_t name_bytes = load.prefix.total_size - sizeof(load) - 1 - load.code_size;
	if (name_bytes > PERFMAP_NAME_MAX)
		return 0;
	if (held <= sizeof(load) + name_bytes)
		return memchr(data + sizeof(load), 0, held - sizeof(load)) ? 0 : -1;
	return strnlen((const char *)data + sizeof(load), name_bytes + 1) == name_bytes;
}

/* Returns how many of the bytes belong to no record, and whether one begins after them (lost). */
static size_t record_search(struct jitdump *jitdump, const unsigned char *data, size_t held)
{
	size_t at = 0;
	int begins = -1;

	while (at < held && !(begins = load_begins(jitdump, data + at, held - at)))
		at++;
	jitdump->lost = begins != 1;
	return at;
}

static int record_take(struct jitdump *jitdump, const struct jitdump_record *record,
		       jitdump_code_fn code, void *context)
{
	struct record_prefix prefix;
	struct jitdump_file_header header;

	if (!jitdump->header_seen) {
		memcpy(&header, record->data, sizeof(header));
		jitdump->pid = header.pid;
		jitdump->header_seen = 1;
		return 0;
	}
	memcpy(&prefix, record->data, sizeof(prefix));
	jitdump->records += prefix.id == RECORD_LOAD || prefix.id == RECORD_MOVE;
	if (prefix.id == RECORD_LOAD)
		return load_take(jitdump, record, code, context);
	return prefix.id == RECORD_MOVE ? move_take(jitdump, record, code, context) : 0;
}

/* Takes the records that are buffered so far, and keeps the rest. */
static int held_take(struct jitdump *jitdump, jitdump_code_fn code, void *context)
{
	size_t at = 0;
	int err = 0;

	while (!err && at < jitdump->held) {
		struct jitdump_record record = {.data = jitdump->head + at};
		size_t held = jitdump->held - at;

		if (jitdump->lost) {
			at += record_search(jitdump, record.data, held);
			if (jitdump->lost)
				break;
			continue;
		}
		int64_t size = record_size(jitdump, record.data, held);
		if (size < 0)
			return (int)size;
		if (!size)
			break;
		record.size = size;
		record.held = held < record.size ? held : record.size;
		if (jitdump->header_seen && !record_fits(&record)) {
			jitdump->lost = 1;
			jitdump->torn++;
			at++;
			continue;
		}
		if (record.held < record.size && held < JITDUMP_HEAD_MAX)
			break;
		err = record_take(jitdump, &record, code, context);
		at += record.held;
		jitdump->skip = record.size - record.held;
	}
	jitdump->held -= at;
	memmove(jitdump->head, jitdump->head + at, jitdump->held);
	return err;
}

int jitdump_read(struct jitdump *jitdump, const void *data, size_t bytes, jitdump_code_fn code,
		 void *context)
{
	const unsigned char *from = data;
	int err = 0;

	while (!err && bytes) {
		size_t room = jitdump->skip ? jitdump->skip : JITDUMP_HEAD_MAX - jitdump->held;
		size_t taken = room < bytes ? room : bytes;

		if (jitdump->skip) {
			jitdump->skip -= taken;
		} else {
			memcpy(jitdump->head + jitdump->held, from, taken);
			jitdump->held += taken;
			err = held_take(jitdump, code, context);
		}
		from += taken;
		bytes -= taken;
	}
	return err;
}

int jitdump_header_put(struct buffer *out, pid_t pid, uint64_t time_ns)
{
	struct jitdump_file_header header = {
		.magic = MAGIC,
		.version = VERSION,
		.total_size = sizeof(header),
		.machine = ARCH_ELF,
		.pid = (uint32_t)pid,
		.timestamp = time_ns,
	};

	return buffer_append(out, &header, sizeof(header));
}

int jitdump_load_put(struct buffer *out, pid_t pid, uint64_t index, const struct jitdump_code *code)
{
	uint64_t head_bytes = sizeof(struct record_load) + code->name_bytes + 1;
	struct record_load load = {
		.prefix = {.id = RECORD_LOAD, .timestamp = code->time_ns},
		.pid = (uint32_t)pid,
		.tid = (uint32_t)pid,
		.vma = code->address,
		.code_addr = code->address,
		.code_size = code->bytes,
		.code_index = index,
	};

	if (code->bytes > UINT32_MAX - head_bytes)
		return -E2BIG;
	load.prefix.total_size = (uint32_t)(head_bytes + code->bytes);
	return buffer_append(out, &load, sizeof(load))
		       ?: buffer_append(out, code->name, code->name_bytes)
		       ?: buffer_append(out, "", 1);
}

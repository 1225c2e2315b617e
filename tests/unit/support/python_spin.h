/* SPDX-License-Identifier: Apache-2.0 */
/* A real interpreter in a known call, and what must be read from its runtime. */
#pragma once

#include <errno.h>

#include "proc/memory.h"
#include "pythons.h"
#include "ranges.h"
#include "runtime/cpython/code.h"
#include "runtime/cpython/lines.h"
#include "runtime/cpython/runtime.h"
#include "runtime/cpython/tstate.h"
#include "util/buffer.h"

#define SPIN      "tests/unit/data/python/spin.py"
#define SPACE     7
#define MAX_WAITS 5000 /* of a millisecond each */
#define MAX_STEPS 1000 /* system calls before libpython is mapped */

static int spin_start(struct python_child *child, char *path, char *environment, uint64_t *ident)
{
	char line[64];

	if (access(SPIN, R_OK)) {
		printf("%s is not to be found from here\n", SPIN);
		return -1;
	}
	if (python_start(child, (char *[]){path, "-S", SPIN, NULL}, environment))
		return -1;
	if (!fgets(line, sizeof(line), child->out))
		return -1;
	*ident = strtoull(line, NULL, 10);
	return 0;
}

static inline uint64_t word(const struct python_runtime *runtime, uint64_t address)
{
	uint64_t value = 0;

	assert_int_equal(space_read_u64(runtime->space, address, &value), 0);
	return value;
}

/* The thread's state in the thread list. */
static inline uint64_t tstate_match(const struct python_runtime *runtime, uint64_t ident)
{
	const struct abi_offsets *offsets = &runtime->target.offsets;
	uint64_t interp =
		word(runtime, runtime->target.runtime + offsets->runtime_interpreters_head);
	uint64_t tstate;

	assert_int_not_equal(interp, 0);
	for (tstate = word(runtime, interp + offsets->interp_threads_head); tstate;
	     tstate = word(runtime, tstate + offsets->tstate_next))
		if (word(runtime, tstate + offsets->tstate_thread_id) == ident)
			return tstate;
	return 0;
}

/* The lookup that BPF does; ident is the fs base of the thread. */
static inline uint64_t tstate_current(const struct python_runtime *runtime, uint64_t ident)
{
	const struct abi_target *target = &runtime->target;
	uint64_t block;

	switch (target->tstate_source) {
	case ABI_TSTATE_SLOT:
		return word(runtime, (uint64_t)target->tstate_address);
	case ABI_TSTATE_TLS:
		return word(runtime, ident + (uint64_t)target->tstate_address);
	case ABI_TSTATE_DTV:
		block = word(runtime, word(runtime, ident + 8) + 16 * target->tls_module);
		return word(runtime, block + (uint64_t)target->tstate_address);
	}
	return 0;
}

static inline uint64_t frame_top(const struct python_runtime *runtime, uint64_t tstate)
{
	const struct abi_offsets *offsets = &runtime->target.offsets;

	if (offsets->tstate_frame != ABI_NONE)
		return word(runtime, tstate + offsets->tstate_frame);
	return word(runtime,
		    word(runtime, tstate + offsets->tstate_cframe) + offsets->cframe_current_frame);
}

static inline int lasti_of(const struct python_runtime *runtime, uint64_t frame, uint64_t code)
{
	const struct abi_offsets *offsets = &runtime->target.offsets;
	uint64_t instr = word(runtime, frame + offsets->frame_instr);

	if (offsets->frame_lasti_scale)
		return (int32_t)instr * offsets->frame_lasti_scale;
	return (int)(instr - (code + offsets->code_bytecode));
}

static inline void check_text(const uint8_t *data, unsigned int kind, unsigned int bytes,
			      const uint16_t *text)
{
	unsigned int i;

	assert_true(kind == 1 || kind == 2);
	for (i = 0; text[i]; i++)
		assert_int_equal(kind == 1 ? data[i] : data[2 * i] | data[2 * i + 1] << 8, text[i]);
	assert_int_equal(bytes, kind * i);
}

/* A code object, assembled from its records. */
static inline void check_code(const struct python_runtime *runtime, uint64_t address,
			      uint64_t frame)
{
	const struct event_header header = {.tgid = 42, .tid = 43, .time_ns = 44};
	struct abi_target target = runtime->target;
	const struct event_code_lines *lines;
	const struct event_code *event;
	struct buffer out = {0};
	uint64_t id;
	int line = 0;

	target.space_id = SPACE;
	/* A part that BPF could not read is not in the id that BPF computed. */
	assert_int_equal(code_id(runtime->space, &target, address, EVENT_MISS_LINES, &id), 0);
	assert_int_equal(code_read(runtime->space, &target, address, id, &header, &out), 0);
	out.size = 0;
	assert_int_equal(code_id(runtime->space, &target, address, 0, &id), 0);
	assert_int_equal(code_read(runtime->space, &target, address, 12345, &header, &out),
			 -ESTALE);
	assert_int_equal(out.size, 0);
	assert_int_equal(code_read(runtime->space, &target, address, id, &header, &out), 0);

	event = (const void *)out.data;
	assert_int_equal(event->header.type, EVENT_CODE);
	assert_int_equal(event->header.tgid, 42);
	assert_int_equal(event->header.tid, 43);
	assert_int_equal(event->header.time_ns, 44);
	assert_int_equal(event->header.size % 8, 0);
	assert_int_equal(event->missing, 0);
	assert_int_equal(event->address, address);
	assert_int_equal(event->first_line, 3);
	check_text(event->data, event->filename_kind, event->filename_bytes, u"snow\u2603.py");
	check_text(event->data + event->filename_bytes, event->qualname_kind, event->qualname_bytes,
		   runtime->offsets->version < 0x030b ? u"spin" : u"C.spin");

	lines = (const void *)(out.data + event->header.size);
	assert_int_equal(lines->header.type, EVENT_CODE_LINES);
	assert_int_equal(lines->code_id, event->code_id);
	assert_int_equal(lines->offset, 0);
	assert_int_equal(lines->bytes, event->lines_bytes);
	assert_int_equal(out.size, event->header.size + lines->header.size);
	/* The child may still be writing its output, from line 5. */
	for (int i = 0; i < MAX_WAITS && (line < 6 || line > 7); i++) {
		const struct lines_table table = {.format = runtime->offsets->lines,
						  .first_line = (int)event->first_line,
						  .data = lines->data,
						  .bytes = lines->bytes};

		line = lines_find(&table, lasti_of(runtime, frame, address));
		usleep(i ? 1000 : 0);
	}
	assert_uint_in_range(line, 6, 7);
	buffer_free(&out);
}

static inline void check_spinning(const struct python_runtime *runtime, uint64_t ident)
{
	const struct abi_offsets *offsets = &runtime->target.offsets;
	uint64_t tstate = tstate_match(runtime, ident), frame, code;
	int depth = 1;

	assert_int_not_equal(tstate, 0);
	if (runtime->target.tstate_source != ABI_TSTATE_MATCH) {
		/* Between its output and the loop the child does not hold the GIL. */
		for (int i = 0; i < MAX_WAITS && tstate_current(runtime, ident) == 0; i++)
			usleep(1000);
		assert_int_equal(tstate_current(runtime, ident), tstate);
	}
	frame = frame_top(runtime, tstate);
	code = word(runtime, frame + offsets->frame_code);
	assert_int_equal(word(runtime, code + offsets->object_type), runtime->target.code_type);
	check_code(runtime, code, frame);

	/* Below it: C's caller, spin.py's exec(); then nothing. */
	for (frame = word(runtime, frame + offsets->frame_previous); frame && depth < 10; depth++)
		frame = word(runtime, frame + offsets->frame_previous);
	assert_true(frame == 0 && depth >= 3);
}

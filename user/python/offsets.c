/* SPDX-License-Identifier: Apache-2.0 */
#include "python/offsets.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"

static const struct python_offsets table[] = {
#include "python/offsets_table.inc"
};

#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

/* _Py_DebugOffsets of 3.13 (Include/internal/pycore_runtime.h), as far as it is used here. */
struct debug_offsets_313 {
	uint8_t cookie[8];
	uint64_t version, free_threaded;
	struct {
		uint64_t size, finalizing, interpreters_head;
	} runtime;
	struct {
		uint64_t size, id, next, threads_head, gc, imports_modules, sysdict, builtins, ceval_gil;
		uint64_t gil_runtime_state, gil_enabled, gil_locked, gil_holder;
	} interp;
	struct {
		uint64_t size, prev, next, interp, current_frame, thread_id, native_thread_id;
		uint64_t datastack_chunk, status;
	} tstate;
	struct {
		uint64_t size, previous, executable, instr_ptr, localsplus, owner;
	} frame;
	struct {
		uint64_t size, filename, name, qualname, linetable, firstlineno, argcount;
		uint64_t localsplusnames, localspluskinds, co_code_adaptive;
	} code;
	struct {
		uint64_t size, ob_type;
	} object;
};

_Static_assert(sizeof(struct debug_offsets_313) == OFFSETS_DEBUG_BYTES, "as much as the caller must read");

const struct python_offsets *offsets_for(uint32_t version)
{
	for (size_t i = 0; i < TABLE_COUNT; i++)
		if (table[i].version == version)
			return &table[i];
	return NULL;
}

const char *offsets_known(void)
{
	return "3.8, 3.9, 3.10, 3.11, 3.12, 3.13";
}

int offsets_apply_debug(const uint8_t bytes[OFFSETS_DEBUG_BYTES], uint32_t version_hex,
			struct python_offsets *offsets)
{
	struct abi_offsets *abi = &offsets->abi;
	struct debug_offsets_313 debug;
	int changed = 0;

	memcpy(&debug, bytes, sizeof(debug));
	if (memcmp(debug.cookie, "xdebugpy", sizeof(debug.cookie)))
		return error_set(-ENOTSUP,
				 "its _PyRuntime does not start with the mark of 3.13's debug offsets");
	if (debug.version != version_hex)
		return error_set(-ENOTSUP, "its debug offsets are of version 0x%08llx, the file of 0x%08x",
				 (unsigned long long)debug.version, version_hex);
	if (debug.free_threaded)
		return error_set(-ENOTSUP, "a free-threaded build of Python, which is not supported");

	const struct {
		uint16_t *field;
		uint64_t value;
	} fields[] = {
		{&abi->runtime_interpreters_head, debug.runtime.interpreters_head},
		{&abi->interp_next, debug.interp.next},
		{&abi->interp_threads_head, debug.interp.threads_head},
		{&abi->tstate_next, debug.tstate.next},
		{&abi->tstate_thread_id, debug.tstate.thread_id},
		{&abi->tstate_frame, debug.tstate.current_frame},
		{&abi->frame_code, debug.frame.executable},
		{&abi->frame_previous, debug.frame.previous},
		{&abi->frame_instr, debug.frame.instr_ptr},
		{&abi->frame_owner, debug.frame.owner},
		{&abi->code_first_line, debug.code.firstlineno},
		{&abi->code_filename, debug.code.filename},
		{&abi->code_qualname, debug.code.qualname},
		{&abi->code_lines, debug.code.linetable},
		{&abi->code_bytecode, debug.code.co_code_adaptive},
		{&abi->object_type, debug.object.ob_type},
	};
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].value >= ABI_NONE)
			return error_set(-ENOTSUP, "its debug offsets hold an impossible offset (%llu)",
					 (unsigned long long)fields[i].value);
		changed |= *fields[i].field != fields[i].value;
		*fields[i].field = (uint16_t)fields[i].value;
	}
	return changed;
}

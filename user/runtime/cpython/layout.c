/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process keeps running, so a structure may disappear before it is read. What does not agree is
 * checked again after a pause in which the process makes progress. What agreed once, in any thread,
 * is proven.
 */
#include "runtime/cpython/layout.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "object/insn/machine.h"
#include "proc/memory.h"
#include "runtime/cpython/heap.h"
#include "util/error.h"

#define TRIES            20
#define PAUSE_NS         500000 /* between two tries */
#define MAX_INTERPRETERS 16u
#define MAX_THREADS      64u /* per interpreter */
#define MAX_FRAMES       16u /* per thread */
#define LINK_WORDS       8u  /* a thread state begins with its links: next, previous, interpreter */
#define MAX_READS        20000u
#define MAX_LINE         (1 << 24)
#define MAX_OWNER        15u
#define DESCRIPTOR_LIST  192 /* in struct pthread of glibc on arm64, after its padding */
#define TAG_BITS         7u
#define NAME_BYTES       8u

/* Facts to prove; names[] has CPython's names. */
enum fact {
	FACT_INTERPRETER,
	FACT_THREAD,
	FACT_THREAD_ID,
	FACT_CODE,
	FACT_INSTRUCTION,
	FACT_OWNER,
	FACT_FILENAME,
	FACT_QUALNAME,
	FACT_LINES,
	FACT_FIRST_LINE,
	FACT_COUNT
};

static const char *const names[FACT_COUNT] = {
	[FACT_INTERPRETER] = "_PyRuntimeState.interpreters.head",
	[FACT_THREAD] = "PyInterpreterState.threads.head",
	[FACT_THREAD_ID] = "PyThreadState.thread_id",
	[FACT_CODE] = "the code object of PyThreadState's frame",
	[FACT_INSTRUCTION] = "the instruction of PyThreadState's frame",
	[FACT_OWNER] = "_PyInterpreterFrame.owner",
	[FACT_FILENAME] = "PyCodeObject.co_filename",
	[FACT_QUALNAME] = "PyCodeObject.co_qualname",
	[FACT_LINES] = "PyCodeObject.co_linetable",
	[FACT_FIRST_LINE] = "PyCodeObject.co_firstlineno",
};

struct proof {
	const struct python_runtime *runtime;
	const struct abi_offsets *abi;
	uint8_t tested[FACT_COUNT]; /* data to test it was found */
	uint8_t proven[FACT_COUNT]; /* the data agreed */
	uint32_t reads;             /* so far */
	int err;                    /* -ESRCH, -EPERM: the process cannot be read any more */
};

/* 1: the memory was read. */
static int get(struct proof *proof, uint64_t address, void *out, size_t bytes)
{
	if (proof->reads++ >= MAX_READS)
		return 0;
	int err = runtime_read(proof->runtime, address, out, bytes);
	if (err == -ESRCH || err == -EPERM)
		proof->err = err;
	return !err;
}

static int get_u64(struct proof *proof, uint64_t address, uint64_t *out)
{
	return get(proof, address, out, sizeof(*out));
}

static void note(struct proof *proof, enum fact fact, int agrees)
{
	proof->tested[fact] = 1;
	proof->proven[fact] |= agrees;
}

/* The first fact that was tested but not proven; FACT_COUNT: none. */
static enum fact fact_missing(const struct proof *proof)
{
	enum fact fact = 0;

	while (fact < FACT_COUNT && (!proof->tested[fact] || proof->proven[fact]))
		fact++;
	return fact;
}

/* Whether the object at address has the type of this name. */
static bool is_object(struct proof *proof, uint64_t address, const char *name)
{
	char bytes[NAME_BYTES] = "";
	uint64_t type, text;

	return get_u64(proof, address + proof->abi->object_type, &type) &&
	       get_u64(proof, type + proof->runtime->offsets->heap.type_name, &text) &&
	       get(proof, text, bytes, strlen(name) + 1) && !strcmp(bytes, name);
}

static bool is_member(struct proof *proof, uint64_t object, uint16_t offset, const char *name)
{
	uint64_t member;

	return get_u64(proof, object + offset, &member) && is_object(proof, member, name);
}

static void code_prove(struct proof *proof, uint64_t code)
{
	const struct abi_offsets *abi = proof->abi;
	int32_t line = -1;

	note(proof, FACT_FILENAME, is_member(proof, code, abi->code_filename, "str"));
	note(proof, FACT_QUALNAME, is_member(proof, code, abi->code_qualname, "str"));
	note(proof, FACT_LINES, is_member(proof, code, abi->code_lines, "bytes"));
	note(proof, FACT_FIRST_LINE,
	     get(proof, code + abi->code_first_line, &line, sizeof(line)) && line >= 0 &&
		     line < MAX_LINE);
}

/* The bytecode that the frame runs: the code object's own, or its thread's copy. 0: unreadable. */
static int bytecode_find(struct proof *proof, uint64_t frame, uint64_t code, uint64_t *bytecode)
{
	const struct abi_offsets *abi = proof->abi;
	uint64_t copies;
	int32_t copy;

	*bytecode = code + abi->code_bytecode;
	if (abi->code_copies == ABI_NONE)
		return 1;
	return get(proof, frame + abi->frame_copy, &copy, sizeof(copy)) && copy >= 0 &&
	       get_u64(proof, code + abi->code_copies, &copies) &&
	       get_u64(proof, copies + sizeof(uint64_t) * (1 + (uint64_t)copy), bytecode);
}

/* Whether the frame points to an instruction of its code, or to the one before the first. */
static int is_instruction(struct proof *proof, uint64_t frame, uint64_t code)
{
	const struct abi_offsets *abi = proof->abi;
	uint64_t instr, bytecode;
	int64_t units;
	int32_t lasti;

	if (abi->frame_lasti_scale)
		return get(proof, frame + abi->frame_instr, &lasti, sizeof(lasti)) && lasti >= -1;
	if (!bytecode_find(proof, frame, code, &bytecode))
		return 0;
	return get_u64(proof, frame + abi->frame_instr, &instr) &&
	       get(proof, code + abi->bytes_size, &units, sizeof(units)) && units > 0 &&
	       units < INT32_MAX && instr + 2 >= bytecode && instr < bytecode + 2 * (uint64_t)units;
}

/* 1: the frame of a Python function, whose code was checked. */
static int frame_prove(struct proof *proof, uint64_t frame)
{
	const struct abi_offsets *abi = proof->abi;
	uint8_t owner = UINT8_MAX;
	uint64_t code;

	if (!get_u64(proof, frame + abi->frame_code, &code))
		return 0;
	if (abi->frame_code_tagged)
		code &= ~(uint64_t)TAG_BITS;
	if (!is_object(proof, code, "code"))
		return 0;
	note(proof, FACT_CODE, 1);
	note(proof, FACT_INSTRUCTION, is_instruction(proof, frame, code));
	if (abi->frame_owner != ABI_NONE)
		note(proof, FACT_OWNER,
		     get(proof, frame + abi->frame_owner, &owner, sizeof(owner)) &&
			     owner <= MAX_OWNER);
	code_prove(proof, code);
	return 1;
}

/*
 * Checks a thread's frames until everything is proven: frames that are not of functions have less
 * data.
 */
static void frames_prove(struct proof *proof, uint64_t thread)
{
	const struct abi_offsets *abi = proof->abi;
	uint64_t frame = 0;
	int found;

	if (abi->tstate_frame != ABI_NONE)
		found = get_u64(proof, thread + abi->tstate_frame, &frame);
	else
		found = get_u64(proof, thread + abi->tstate_cframe, &frame) && frame &&
			get_u64(proof, frame + abi->cframe_current_frame, &frame);
	if (!found || !frame)
		return;
	note(proof, FACT_CODE, 0);
	for (unsigned int i = 0; i < MAX_FRAMES && frame; i++)
		if ((frame_prove(proof, frame) && fact_missing(proof) == FACT_COUNT) ||
		    !get_u64(proof, frame + abi->frame_previous, &frame))
			return;
}

/*
 * Is this pthread_self()? On x86-64, and with musl, the descriptor's first word is its own address.
 * With glibc on arm64 it is in a list, whose neighbours point back to it.
 */
static bool is_descriptor(struct proof *proof, uint64_t id)
{
	uint64_t list = id + DESCRIPTOR_LIST, self, neighbours[2], before = 0, after = 0;

	if (get_u64(proof, id, &self) && self == id)
		return 1;
	return machine_own() == &machine_arm64 &&
	       get(proof, list, neighbours, sizeof(neighbours)) &&
	       get_u64(proof, neighbours[0] + sizeof(uint64_t), &after) &&
	       get_u64(proof, neighbours[1], &before) && after == list && before == list;
}

static void thread_id_prove(struct proof *proof, uint64_t thread)
{
	uint64_t id = 0;

	if (get_u64(proof, thread + proof->abi->tstate_thread_id, &id) && id)
		note(proof, FACT_THREAD_ID, is_descriptor(proof, id));
}

static int thread_prove(struct proof *proof, uint64_t interp, uint64_t thread)
{
	uint64_t links[LINK_WORDS];
	int agrees = 0;

	if (get(proof, thread, links, sizeof(links)))
		for (unsigned int i = 0; i < LINK_WORDS; i++)
			agrees |= links[i] == interp;
	note(proof, FACT_THREAD, agrees);
	if (!agrees)
		return 0;
	thread_id_prove(proof, thread);
	frames_prove(proof, thread);
	return 1;
}

static void interpreters_prove(struct proof *proof)
{
	const struct abi_offsets *abi = proof->abi;
	uint64_t interp, thread;

	if (!get_u64(proof, proof->runtime->target.runtime + abi->runtime_interpreters_head,
		     &interp))
		return;
	for (unsigned int i = 0; i < MAX_INTERPRETERS && interp; i++) {
		int found = get_u64(proof, interp + abi->interp_threads_head, &thread);

		note(proof, FACT_INTERPRETER, found);
		for (unsigned int j = 0; found && j < MAX_THREADS && thread; j++)
			found = thread_prove(proof, interp, thread) &&
				get_u64(proof, thread + abi->tstate_next, &thread);
		if (!get_u64(proof, interp + abi->interp_next, &interp))
			return;
	}
}

int layout_prove(const struct python_runtime *runtime)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	struct proof proof = {.runtime = runtime, .abi = &runtime->offsets->abi};
	enum fact missing = FACT_COUNT;
	int tries = runtime->copy ? 1 : TRIES; /* a copy does not change */

	for (int i = 0; i < tries && !proof.err && proof.reads < MAX_READS; i++) {
		if (i)
			nanosleep(&pause, NULL);
		interpreters_prove(&proof);
		missing = fact_missing(&proof);
		if (missing == FACT_COUNT)
			return 0;
	}
	if (proof.err)
		return proof.err;
	return error_set(-ENOTSUP, "%s of Python %u.%u could not be proven in this process",
			 names[missing], runtime->offsets->version >> 8,
			 runtime->offsets->version & 0xff);
}

int layout_offsets_read(const struct python_runtime *runtime, uint64_t vaddr,
			uint8_t bytes[OFFSETS_DEBUG_BYTES])
{
	if (elf_file_read(runtime->file, vaddr, bytes, OFFSETS_DEBUG_BYTES) !=
		    (int)OFFSETS_DEBUG_BYTES &&
	    runtime_read(runtime, runtime->target.runtime, bytes, OFFSETS_DEBUG_BYTES))
		return error_set(-EFAULT, "its _PyRuntime cannot be read");
	return 0;
}

int layout_refuse(struct python_runtime *runtime, uint64_t vaddr)
{
	const struct python_offsets *newest = offsets_newest();
	unsigned int major = runtime->version_hex >> 24, minor = runtime->version_hex >> 16 & 255;
	struct python_offsets offsets = *newest;
	uint8_t bytes[OFFSETS_DEBUG_BYTES];
	char why[160] = "what can be proven agrees, but its line table format is unknown";

	if (runtime->version_hex >> 16 < newest->version)
		return error_set(-ENOTSUP, "it runs Python %u.%u; known versions: %s", major, minor,
				 offsets_known(BUILD_RELEASE));
	int err = layout_offsets_read(runtime, vaddr, bytes);
	offsets.version = runtime->version_hex >> 16;
	err = err ?: offsets_apply_debug(bytes, runtime->version_hex, &offsets);
	runtime->offsets = &offsets;
	if (err >= 0)
		err = layout_prove(runtime);
	if (err >= 0)
		err = heap_find(runtime);
	runtime->offsets = NULL;
	if (err < 0)
		snprintf(why, sizeof(why), "%s", error_reason(err));
	return error_set(-ENOTSUP, "it runs Python %u.%u; known versions: %s; read as %u.%u: %s",
			 major, minor, offsets_known(BUILD_RELEASE), newest->version >> 8,
			 newest->version & 255, why);
}

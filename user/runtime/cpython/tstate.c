/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Up to 3.11 the thread state is a word of _PyRuntime. From 3.12 on it is the hidden thread-local
 * variable _Py_tss_tstate, which is
 *
 * 	in an executable  at a fixed distance below the fs base: variant II of the ELF TLS
 * 	                  ABI puts the executable's block right below it;
 * 	in a library      in the block that the thread's vector (fs base + 8) holds for the
 * 	                  library's module id. The dynamic loader writes that id into a GOT slot of
 * 	                  the library.
 *
 * A stripped file has no such symbol. There, the code of an exported function that only returns the
 * variable gives the location.
 */
#include "runtime/cpython/tstate.h"

#include <errno.h>
#include <string.h>

#include "util/error.h"

#define MAX_TLS_BYTES  (1u << 20)
#define MAX_TLS_MODULE 65536u
#define CODE_BYTES     48

struct tstate_reader {
	const uint8_t *code;
	size_t at, bytes;
};

/* Steps over the bytes of pattern if they come next. */
static int take(struct tstate_reader *reader, const char *pattern, size_t length)
{
	if (reader->bytes - reader->at < length ||
	    memcmp(reader->code + reader->at, pattern, length))
		return 0;
	reader->at += length;
	return 1;
}

#define TAKE(reader, pattern) take(reader, pattern, sizeof(pattern) - 1)

static int take_i32(struct tstate_reader *reader, int64_t *out)
{
	int32_t value;

	if (reader->bytes - reader->at < sizeof(value))
		return 0;
	memcpy(&value, reader->code + reader->at, sizeof(value));
	reader->at += sizeof(value);
	*out = value;
	return 1;
}

/* mov disp(%rax),%rax */
static int take_load(struct tstate_reader *reader, int64_t *offset)
{
	*offset = 0;
	if (TAKE(reader, "\x48\x8b\x00"))
		return 1;
	if (TAKE(reader, "\x48\x8b\x80"))
		return take_i32(reader, offset);
	if (!TAKE(reader, "\x48\x8b\x40") || reader->at == reader->bytes)
		return 0;
	*offset = (int8_t)reader->code[reader->at++];
	return 1;
}

/* The TLS models of executables, including relaxed ones. */
static int take_local(struct tstate_reader *reader, struct tstate_access *out)
{
	int64_t address = 0;

	/* mov $offset,%rax; mov %fs:(%rax),%rax */
	if (TAKE(reader, "\x48\xc7\xc0"))
		return take_i32(reader, &out->offset) && TAKE(reader, "\x64\x48\x8b\x00");
	while (TAKE(reader, "\x66"))
		;
	/* mov %fs:offset,%rax */
	if (!TAKE(reader, "\x64\x48\x8b\x04\x25") || !take_i32(reader, &out->offset))
		return 0;
	if (out->offset)
		return 1;
	/*
	 * It was mov %fs:0,%rax. An optional lea offset(%rax),%rax and a load relative to it
	 * follow.
	 */
	if (TAKE(reader, "\x48\x8d\x80") && !take_i32(reader, &address))
		return 0;
	if (!take_load(reader, &out->offset))
		return 0;
	out->offset += address;
	return 1;
}

/*
 * lea slot(%rip),%rdi; call __tls_get_addr; mov disp(%rax),%rax. The prefixes distinguish the two
 * models.
 */
static int take_dynamic(struct tstate_reader *reader, struct tstate_access *out)
{
	int64_t slot, call;

	/* general dynamic: the word after the slot holds the offset */
	out->indirect = TAKE(reader, "\x66");
	if (!TAKE(reader, "\x48\x8d\x3d") || !take_i32(reader, &slot))
		return 0;
	out->slot = slot + (int64_t)reader->at;
	if (out->indirect ? !TAKE(reader, "\x66\x66\x48\xe8") && !TAKE(reader, "\x66\x48\xff\x15")
			  : !TAKE(reader, "\xe8") && !TAKE(reader, "\xff\x15"))
		return 0;
	return take_i32(reader, &call) && take_load(reader, &out->offset);
}

static int take_access(struct tstate_reader *reader, struct tstate_access *out)
{
	struct tstate_reader start = *reader;

	*out = (struct tstate_access){0};
	if (take_dynamic(reader, out))
		return 1;
	*reader = start;
	*out = (struct tstate_access){0};
	return take_local(reader, out);
}

int tstate_decode(const uint8_t *code, size_t bytes, struct tstate_access *out)
{
	struct tstate_reader reader = {.code = code, .bytes = bytes};
	struct tstate_access access;
	int found;

	TAKE(&reader, "\xf3\x0f\x1e\xfa"); /* endbr64 */
	/* The stack is aligned for a call, even where the linker has relaxed the call away. */
	if (TAKE(&reader, "\x48\x83\xec\x08")) /* sub $8,%rsp … add $8,%rsp */
		found = take_access(&reader, &access) && TAKE(&reader, "\x48\x83\xc4\x08");
	else if (TAKE(&reader, "\x55\x48\x89\xe5")) /* push %rbp; mov %rsp,%rbp … pop %rbp */
		found = take_access(&reader, &access) && TAKE(&reader, "\x5d");
	else if (TAKE(&reader, "\x50")) /* push %rax … pop %rcx */
		found = take_access(&reader, &access) && TAKE(&reader, "\x59");
	else
		found = take_access(&reader, &access);
	if (!found || !TAKE(&reader, "\xc3"))
		return -ENOENT;
	*out = access;
	return 0;
}

/* The exported function that returns the variable: its access, and its vaddr. */
static int access_find(struct python_runtime *runtime, struct tstate_access *access,
		       uint64_t *vaddr)
{
	const char *name = runtime->offsets->version >= 0x030d ? "PyThreadState_GetUnchecked"
							       : "_PyThreadState_UncheckedGet";
	uint8_t code[CODE_BYTES];
	struct elf_symbol symbol;

	if (elf_file_symbol(runtime->file, name, &symbol))
		return -ENOENT;
	*vaddr = symbol.vaddr;
	int got = elf_file_read(runtime->file, symbol.vaddr, code, sizeof(code));
	return got < 0 ? got : tstate_decode(code, (size_t)got, access);
}

/* Runtime in the executable. 0: *offset from the fs base is known; -ENOENT. */
static int find_static(struct python_runtime *runtime, int64_t *offset)
{
	struct tstate_access access;
	struct elf_symbol symbol;
	uint64_t block, vaddr;

	if (elf_file_tls(runtime->file, &block) || block > MAX_TLS_BYTES)
		return -ENOENT;
	if (elf_file_symbol(runtime->file, "_Py_tss_tstate", &symbol) == 0 && symbol.tls)
		*offset = (int64_t)symbol.vaddr - (int64_t)block;
	else if (access_find(runtime, &access, &vaddr) == 0 && !access.slot)
		*offset = access.offset;
	else
		return -ENOENT;
	return *offset < 0 && *offset >= -(int64_t)block && !(*offset & 7) ? 0 : -ENOENT;
}

/*
 * Runtime in a library. 0; -ENOENT: cannot be determined; -EAGAIN: the dynamic loader has not
 * relocated it yet.
 */
static int find_dynamic(struct python_runtime *runtime, int64_t *offset, uint32_t *module)
{
	struct tstate_access access = {0};
	struct elf_symbol symbol;
	uint64_t block, vaddr, slot, id, word;

	if (elf_file_tls(runtime->file, &block) || block > MAX_TLS_BYTES)
		return -ENOENT;
	if (elf_file_symbol(runtime->file, "_Py_tss_tstate", &symbol) == 0 && symbol.tls) {
		*offset = (int64_t)symbol.vaddr;
		if (elf_file_dtpmod_slot(runtime->file, &slot))
			return -ENOENT;
	} else {
		if (access_find(runtime, &access, &vaddr) || !access.slot)
			return -ENOENT;
		*offset = access.offset;
		slot = vaddr + (uint64_t)access.slot;
	}
	if (runtime_read_u64(runtime, runtime->bias + slot, &id) || !id || id >= MAX_TLS_MODULE)
		return -EAGAIN;
	if (access.indirect) {
		if (runtime_read_u64(runtime, runtime->bias + slot + 8, &word) ||
		    word > MAX_TLS_BYTES)
			return -EAGAIN;
		*offset += (int64_t)word;
	}
	*module = (uint32_t)id;
	return *offset >= 0 && (uint64_t)*offset + 8 <= block && !(*offset & 7) ? 0 : -ENOENT;
}

void tstate_find(struct python_runtime *runtime, int musl)
{
	struct abi_target *target = &runtime->target;
	uint32_t module = 0;
	int64_t offset = 0;
	int err = -ENOENT;

	target->tstate_source = ABI_TSTATE_MATCH;
	target->tstate_address = 0;
	target->tls_module = 0;
	if (runtime->offsets->gil_tstate) {
		target->tstate_source = ABI_TSTATE_SLOT;
		target->tstate_address = (int64_t)(target->runtime + runtime->offsets->gil_tstate);
		return;
	}
	if (runtime->static_exe)
		err = find_static(runtime, &offset);
	else if (!musl)
		err = find_dynamic(runtime, &offset, &module);
	if (err) {
		log_debug("%d: threads are matched by id: %s", (int)runtime->pid,
			  err == -EAGAIN ? "the library's thread-local storage is not set up yet"
					 : "the file does not show where its thread state is");
		return;
	}
	target->tstate_source = runtime->static_exe ? ABI_TSTATE_TLS : ABI_TSTATE_DTV;
	target->tstate_address = offset;
	target->tls_module = module;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/greenlets.h"

#include <errno.h>

#include "runtime/cpython/namespace.h"
#include "util/arch.h"
#include "util/array.h"
#include "util/error.h"
#include "util/word.h"

#define FILE_NAME  "/_greenlet."
#define BLOCK_MAX  512u /* bytes of its thread-local variables */
#define BASES_MAX  32u
#define MODULE_MAX 65536u
#define VECTOR_AT  8u /* of a thread's vector of blocks, from its pointer (x86-64, glibc) */
#define VECTOR_ENTRY                                                                               \
	16u /* {block, what is freed}; entry 0 is a generation, and before it a length */
#define STATE_CURRENT 8u /* of greenlet's state of a thread; the main greenlet is at 0 */

struct greenlets_search {
	const struct python_runtime *runtime;
	uint64_t type;          /* greenlet.greenlet */
	uint64_t module, bytes; /* of its thread-local variables */
};

static uint64_t word_at(const struct greenlets_search *search, uint64_t address)
{
	uint64_t word;

	return runtime_read_u64(search->runtime, address, &word) ? 0 : word;
}

static bool is_greenlet(const struct greenlets_search *search, uint64_t object)
{
	uint64_t type =
		object ? word_at(search, object + search->runtime->target.offsets.object_type) : 0;

	for (uint32_t i = 0; type && type != search->type && i < BASES_MAX; i++)
		type = word_at(search, type + search->runtime->offsets->objects.type_base);
	return type && type == search->type;
}

/* The offset of the variable in this thread's block. 0; -ENOENT. */
static int thread_look(const struct greenlets_search *search, uint64_t pointer, uint64_t *offset)
{
	uint64_t vector = word_at(search, pointer + VECTOR_AT), block;
	uint8_t words[BLOCK_MAX];

	if (!vector || search->module > word_at(search, vector - VECTOR_ENTRY))
		return -ENOENT;
	block = word_at(search, vector + search->module * VECTOR_ENTRY);
	if (!block || runtime_read(search->runtime, block, words, search->bytes))
		return -ENOENT;
	for (uint64_t at = 0; at + 8 <= search->bytes; at += 8) {
		uint64_t state = u64_at(words + at);

		if (state < 4096 || state & 7)
			continue;
		if (is_greenlet(search, word_at(search, state)) &&
		    is_greenlet(search, word_at(search, state + STATE_CURRENT))) {
			*offset = at;
			return 0;
		}
	}
	return -ENOENT;
}

static int threads_look(const struct greenlets_search *search, uint64_t *offset)
{
	const struct abi_offsets *at = &search->runtime->target.offsets;
	uint64_t tstate = namespace_threads(search->runtime);

	for (uint32_t i = 0; tstate && i < NAMESPACE_THREADS; i++) {
		if (!thread_look(search, word_at(search, tstate + at->tstate_thread_id), offset))
			return 0;
		tstate = word_at(search, tstate + at->tstate_next);
	}
	return error_set(-EAGAIN, "no thread of it has switched greenlets yet");
}

/* The number by which threads have the module's variables, and their size. */
static int file_look(struct greenlets_search *search)
{
	struct elf_file *file;
	uint64_t bias, slot;
	int err = namespace_file_open(search->runtime, FILE_NAME, &file, &bias);

	if (!err) {
		err = elf_file_tls(file, &search->bytes) ?: elf_file_dtpmod_slot(file, &slot);
		if (!err)
			search->module = word_at(search, bias + slot);
		elf_file_close(file);
	}
	if (err == -ESRCH || err == -EPERM || err == -ENOMEM)
		return err;
	if (err || search->bytes > BLOCK_MAX || !search->module || search->module > MODULE_MAX)
		return error_set(-ENOTSUP, "its greenlet does not have its current greenlet in "
					   "thread-local storage, as greenlet 2.0 and later built "
					   "for glibc do (--by greenlet)");
	return 0;
}

/* The key "name" of attributes: an interned str, which sys.implementation has as its own. */
static int name_find(const struct python_runtime *runtime, uint64_t sys, uint64_t *name)
{
	struct module_item item = {0};
	uint64_t dict = 0;

	if (namespace_dict_find(runtime, sys, "implementation", &item) ||
	    runtime_read_u64(runtime, item.value + runtime->target.offsets.object_type + 8,
			     &dict) ||
	    namespace_dict_find(runtime, dict, "name", &item))
		return error_set(-EAGAIN, "its sys.implementation has no name");
	*name = item.key;
	return 0;
}

/* Methods in which eventlet and gevent without its C modules call a greenlet's function. */
static const struct greenlet_method {
	const char *module, *type, *name;
} methods[] = {{"eventlet.greenthread", "GreenThread", "main"},
	       {"eventlet.greenpool", "GreenPool", "_spawn_n_impl"},
	       {"gevent.greenlet", "Greenlet", "run"}};

_Static_assert(ARRAY_SIZE(methods) <= LABEL_CODES, "methods");

static void method_look(const struct greenlets_search *search, const struct greenlet_method *method,
			struct label_found *out)
{
	const struct python_runtime *runtime = search->runtime;
	const struct object_offsets *at = &runtime->offsets->objects;
	uint64_t module = 0, function_type = 0, code, mark;
	struct module_item item;

	if (namespace_modules(runtime, &method->module, 1, &module) || !module ||
	    namespace_dict_find(runtime, module, method->type, &item) ||
	    namespace_dict_find(runtime, word_at(search, item.value + at->type_dict), method->name,
				&item) ||
	    namespace_type(runtime, "PyFunction_Type", &function_type) ||
	    word_at(search, item.value + runtime->target.offsets.object_type) != function_type)
		return;
	code = word_at(search, item.value + at->function_code);
	if (runtime_read_u64(runtime, code + (runtime->target.offsets.code_mark & ~7u), &mark))
		return;
	out->keys[out->code_count] =
		(struct abi_label_key){.code = code, .tgid = (uint32_t)runtime->pid};
	out->codes[out->code_count++] = (struct abi_label_code){.mark = mark};
}

int greenlets_place(const struct python_runtime *runtime, struct label_found *out)
{
	static const char *const names[] = {"greenlet._greenlet", "sys"};
	struct greenlets_search search = {.runtime = runtime};
	uint64_t dicts[ARRAY_SIZE(names)] = {0}, name = 0, offset = 0;
	struct module_item type;
	int err;

	if (ARCH_ELF != EM_X86_64)
		return error_set(-ENOTSUP, "greenlets are known on x86-64 only");
	err = namespace_modules(runtime, names, ARRAY_SIZE(names), dicts);
	if (err == -ENOENT || (!err && !dicts[0]))
		return error_set(-EAGAIN, "it has not imported greenlet yet");
	if (!err && namespace_dict_find(runtime, dicts[0], "greenlet", &type))
		return error_set(-EAGAIN, "its greenlet has no type yet");
	if (err)
		return err;
	search.type = type.value;
	err = file_look(&search)
		      ?: name_find(runtime, dicts[1], &name) ?: threads_look(&search, &offset);
	if (err)
		return err;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		method_look(&search, &methods[i], out);
	error_clear();
	out->label.names[0] = name;
	out->label.variable = offset;
	out->label.variable_hash = (uint32_t)search.module;
	return 0;
}

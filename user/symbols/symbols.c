/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/symbols.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"
#include "base/clock.h"
#include "fetch/fetch.h"
#include "symbols/fetched.h"
#include "symbols/lookup.h"
#include "symbols/symbols_state.h"
#include "symbols/texts.h"

/*
 * Shares of the limit of the account: for symbol tables of files, which are not charged to it, and
 * for cached names, which are.
 */
#define FILES_SHARE     8u
#define DWARF_SHARE     4u
#define DWARF_BYTES     ((uint64_t)128 << 20)
#define NAMES_BYTES_MIN ((uint64_t)256 << 10)
#define TABLES_BYTES    ((uint64_t)64 << 20) /* without a limit */
#define PLAIN_WAIT_NS   500000000ull

int symbols_new(struct symbols **out)
{
	return symbols_new_in(out, NULL);
}

int symbols_new_in(struct symbols **out, struct account *account)
{
	struct symbols *symbols = calloc(1, sizeof(*symbols));
	int err;

	if (!symbols)
		return -ENOMEM;
	symbols->account = account;
	symbols->names.parent = account;
	symbols->cache.account = &symbols->names;
	symbols->dwarf_max = account && account->limit ? account->limit / DWARF_SHARE : DWARF_BYTES;
	symbols->tables_max =
		account && account->limit ? account->limit / FILES_SHARE : TABLES_BYTES;
	if (account && account->limit)
		symbols->names.limit = symbols->tables_max > NAMES_BYTES_MIN ? symbols->tables_max
									     : NAMES_BYTES_MIN;
	err = worker_new(&symbols->dwarf.worker);
	if (!err)
		err = worker_new(&symbols->tables.worker);
	if (!err)
		err = files_new(&symbols->files);
	if (!err)
		err = strings_new_in(&symbols->strings, &symbols->names);
	if (err)
		symbols_free(symbols);
	else
		*out = symbols;
	return err;
}

int symbols_fetch_from(struct symbols *symbols, const char *urls)
{
	return fetch_new(&symbols->fetch, urls);
}

int symbols_share_new(struct symbols_share **out, uint64_t max_ns)
{
	struct symbols_share *share = calloc(1, sizeof(*share));

	if (!share)
		return -ENOMEM;
	share->users = 1;
	share->max_ns = max_ns;
	*out = share;
	return 0;
}

void symbols_share_free(struct symbols_share *share)
{
	if (share && !--share->users)
		free(share);
}

static void asked_end(struct symbols *symbols)
{
	struct asked *asked = &symbols->asked;

	if (!asked->file)
		return;
	files_put(symbols->files, asked->file);
	symbols_share_free(asked->share);
	free(asked->path);
	asked->file = NULL;
}

void symbols_free(struct symbols *symbols)
{
	if (!symbols)
		return;
	worker_free(symbols->dwarf.worker);
	worker_free(symbols->tables.worker);
	fetch_free(symbols->fetch);
	asked_end(symbols);
	files_free(symbols->files);
	strings_free(symbols->strings);
	cache_free(&symbols->cache);
	free(symbols);
}

/* The name of the symbol that covers the address, without its version; "" for none. 0, -EAGAIN. */
static int symbol_name(struct symbols *symbols, struct file *file, uint64_t vaddr,
		       uint64_t until_ns, char out[WORKER_NAME_MAX])
{
	const char *name;
	int err = lookup_symbol(symbols, file, vaddr, until_ns, &name);

	out[0] = '\0';
	if (!err && snprintf(out, WORKER_NAME_MAX, "%s", name) < (int)WORKER_NAME_MAX)
		out[strcspn(out, "@")] = '\0';
	return err;
}

/* Caches the frames of an offset in a file. */
static int frames_add(struct symbols *symbols, struct file *file, const char *path, uint64_t offset,
		      const struct worker_frame *found, int count)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	int err = 0;

	symbols->stats.addresses++;
	symbols->stats.unnamed += !found[count - 1].function[0];
	for (int i = 0; !err && i < count; i++) {
		frames[i] = (struct symbols_frame){.line = found[i].line, .inlined = i < count - 1};
		err = found[i].function[0]
			      ? texts_keep(symbols, found[i].function, &frames[i].function)
			      : texts_keep_location(symbols, path, offset, &frames[i].function);
		if (!err)
			err = texts_keep(symbols, found[i].filename[0] ? found[i].filename : path,
					 &frames[i].filename);
	}
	return err ? err
		   : cache_add(&symbols->cache, file->number, offset, frames, (uint32_t)count);
}

/* Caches the answer to the pending question, if it has come. 0, -EAGAIN, -ENOMEM. */
static int asked_finish(struct symbols *symbols, uint64_t until_ns)
{
	struct asked *asked = &symbols->asked;
	struct worker_frame found[WORKER_FRAMES_MAX];
	int count, err;

	if (!asked->file)
		return 0;
	err = asked->has_symbol
		      ? 0
		      : symbol_name(symbols, asked->file, asked->vaddr, until_ns, asked->symbol);
	if (err)
		return err;
	asked->has_symbol = 1;
	symbols->plain_gave_up = 0;
	count = lookup_frames(symbols, asked->file, asked->vaddr, asked->symbol, until_ns, found);
	if (count == -EAGAIN)
		return count;
	if (asked->share)
		asked->share->spent_ns += symbols_worker_ns(symbols) - asked->before_ns;
	if (!count) {
		found[0] = (struct worker_frame){.function = asked->symbol, .filename = ""};
		count = 1;
	}
	err = frames_add(symbols, asked->file, asked->path, asked->offset, found, count);
	asked_end(symbols);
	return err;
}

/* Starts a question about an offset in a file; none is pending. 0; -ENOMEM. */
static int asked_begin(struct symbols *symbols, const struct module *module, uint64_t offset,
		       struct symbols_share *share)
{
	struct asked *asked = &symbols->asked;
	uint64_t vaddr;

	if (elf_file_vaddr(module->file->elf, offset, &vaddr)) {
		const struct worker_frame none = {.function = "", .filename = ""};

		return frames_add(symbols, module->file, module->path, offset, &none, 1);
	}
	asked->path = strdup(module->path);
	if (!asked->path)
		return -ENOMEM;
	asked->has_symbol = 0;
	asked->file = module->file;
	files_share(asked->file);
	asked->share = share;
	if (share)
		share->users++;
	asked->offset = offset;
	asked->vaddr = vaddr;
	asked->before_ns = symbols_worker_ns(symbols);
	return 0;
}

/* Caches an offset of an ELF file. 0; -EAGAIN, -ENOMEM. */
static int offset_resolve(struct symbols *symbols, const struct module *module, uint64_t offset,
			  const struct symbols_ask *ask)
{
	const struct symbols_frame *known;
	/* usually a question about another address */
	int err = asked_finish(symbols, ask->until_ns);

	if (err || cache_find(&symbols->cache, module->file->number, offset, &known))
		return err;
	if (clock_ns(CLOCK_MONOTONIC) >= ask->until_ns)
		return -EAGAIN;
	err = asked_begin(symbols, module, offset, ask->share);
	return err ? err : asked_finish(symbols, ask->until_ns);
}

static uint64_t module_offset(const struct module *module, uint64_t address)
{
	return address - module->start + module->offset;
}

static int share_is_used(const struct symbols_ask *ask)
{
	return ask->share && ask->share->spent_ns >= ask->share->max_ns;
}

static void share_spend(const struct symbols_ask *ask, uint64_t began_ns)
{
	if (ask->share)
		ask->share->spent_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns;
}

static const char *jit_name(const struct modules *modules, uint64_t address)
{
	const char *name = NULL;

	for (size_t i = 0; (!name || !name[0]) && i < modules->jit_count; i++)
		name = jit_map_find(modules->jit[i], address);
	return name;
}

/* Code outside files, or in a file that cannot be read. */
static int elsewhere_resolve(struct symbols *symbols, const struct modules *modules,
			     const struct module *module, uint64_t address,
			     const struct symbols_ask *ask, struct symbols_frame *frame)
{
	uint64_t began_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	const char *name;
	int err;

	if (modules->jit_count && share_is_used(ask))
		return -ETIME;
	name = jit_name(modules, address);
	share_spend(ask, began_ns);
	*frame = (struct symbols_frame){0};
	if (name && name[0])
		err = texts_keep(symbols, name, &frame->function);
	else if (module->inode)
		err = texts_keep_location(symbols, module->path, module_offset(module, address),
					  &frame->function);
	else
		err = texts_keep(symbols, module->path, &frame->function);
	if (!err)
		err = texts_keep(symbols, module->path, &frame->filename);
	return err ? err : 1;
}

static const struct symbols_ask ask_unlimited = {.until_ns = UINT64_MAX};

/*
 * Caches an offset of a file, if the share of its process is not used up. 0; -EAGAIN, -ETIME,
 * -ENOMEM.
 */
static int file_resolve(struct symbols *symbols, const struct module *module, uint64_t offset,
			const struct symbols_ask *ask)
{
	const struct symbols_frame *known;
	uint64_t began_ns;
	int err;

	if (cache_find(&symbols->cache, module->file->number, offset, &known))
		return 0;
	if (share_is_used(ask))
		return -ETIME;
	err = fetched_wait(symbols, module->file, ask->until_ns);
	if (err)
		return err;
	began_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	err = offset_resolve(symbols, module, offset, ask);
	share_spend(ask, began_ns);
	return err;
}

int symbols_prepare(struct symbols *symbols, const struct modules *modules, uint64_t address,
		    const struct symbols_ask *ask)
{
	const struct module *module = modules_find(modules, --address);

	if (!module || !module->file || file_read(module->file) ||
	    fetched_wait(symbols, module->file, 0))
		return 0;
	return file_resolve(symbols, module, module_offset(module, address), ask);
}

static int address_resolve(struct symbols *symbols, const struct modules *modules, uint64_t address,
			   const struct symbols_ask *ask, struct symbols_frame frames[],
			   size_t capacity)
{
	const struct module *module = modules_find(modules, --address);
	const struct symbols_frame *known;
	uint32_t count;
	uint64_t offset;
	int err;

	if (!module || !capacity)
		return 0;
	if (!ask)
		ask = &ask_unlimited;
	if (!module->file || file_read(module->file))
		return elsewhere_resolve(symbols, modules, module, address, ask, &frames[0]);
	offset = module_offset(module, address);
	err = file_resolve(symbols, module, offset, ask);
	if (err)
		return err;
	count = cache_find(&symbols->cache, module->file->number, offset, &known);
	if (count > capacity) {
		symbols->stats.cut++;
		count = (uint32_t)capacity;
	}
	memcpy(frames, known, count * sizeof(*frames));
	return (int)count;
}

int symbols_resolve(struct symbols *symbols, const struct modules *modules, uint64_t address,
		    const struct symbols_ask *ask, struct symbols_frame frames[], size_t capacity)
{
	int count = address_resolve(symbols, modules, address, ask, frames, capacity);

	if (!account_is_full(count) || texts_forget(symbols))
		return count;
	return address_resolve(symbols, modules, address, ask, frames, capacity);
}

/* Answers from the symbol worker if it is idle; does not wait for it after it was slow once. */
static int plain_name(struct symbols *symbols, struct file *file, uint64_t vaddr,
		      char out[WORKER_NAME_MAX])
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + PLAIN_WAIT_NS;
	struct asked *asked = &symbols->asked;
	int err = symbols->plain_gave_up ? -EAGAIN : 0;

	if (!err && asked->file && !asked->has_symbol) {
		err = symbol_name(symbols, asked->file, asked->vaddr, until_ns, asked->symbol);
		asked->has_symbol = !err;
	}
	if (err)
		return err;
	err = symbol_name(symbols, file, vaddr, until_ns, out);
	if (err == -EAGAIN)
		lookup_symbol_abandon(symbols);
	return err;
}

int symbols_resolve_plain(struct symbols *symbols, const struct modules *modules, uint64_t address,
			  struct symbols_frame *frame)
{
	const struct module *module = modules_find(modules, --address);
	char symbol[WORKER_NAME_MAX] = "";
	uint64_t offset, vaddr;
	int err;

	if (!module)
		return 0;
	*frame = (struct symbols_frame){0};
	offset = module_offset(module, address);
	if (module->file &&
	    (module->file->tables != FILE_TABLES_UNKNOWN || module->file == symbols->asked.file ||
	     module->file->fetch == FILE_FETCH_ASKED) &&
	    !elf_file_vaddr(module->file->elf, offset, &vaddr) &&
	    plain_name(symbols, module->file, vaddr, symbol))
		symbols->plain_gave_up = 1;
	err = symbol[0] ? texts_keep(symbols, symbol, &frame->function)
			: texts_keep_location(symbols, module->path, offset, &frame->function);
	if (!err)
		err = texts_keep(symbols, module->path, &frame->filename);
	return err ? err : 1;
}

void symbols_abandon(struct symbols *symbols)
{
	if (!symbols->asked.file)
		return;
	lookup_abandon(symbols);
	asked_end(symbols);
}

uint64_t symbols_worker_ns(const struct symbols *symbols)
{
	return worker_spent_ns(symbols->dwarf.worker) + worker_spent_ns(symbols->tables.worker);
}

int symbols_is_worker(const struct symbols *symbols, pid_t pid)
{
	return worker_pid(symbols->dwarf.worker) == pid ||
	       worker_pid(symbols->tables.worker) == pid;
}

void symbols_stats(const struct symbols *symbols, struct symbols_stats *out)
{
	*out = symbols->stats;
	out->files = files_count(symbols->files);
}

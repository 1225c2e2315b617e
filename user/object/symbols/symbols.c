/* SPDX-License-Identifier: Apache-2.0 */
#include "object/symbols/symbols.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object/symbols/demangle.h"
#include "object/symbols/fetch.h"
#include "object/symbols/symbols_state.h"
#include "util/account.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/text.h"

/* --- texts ------------------------------------------------------------------------------------ */

/* The texts of cached names: printable, and each is kept once. */

/* Clears all cached names and their texts. 0; on failure the texts are still there. */
static int texts_forget(struct symbols *symbols)
{
	struct strings *strings;

	/* First, since there may be no room for anything new. */
	cache_free(&symbols->cache);
	int err = strings_new_in(&strings, &symbols->names);
	if (err)
		return err;
	strings_free(symbols->strings);
	symbols->strings = strings;
	return 0;
}

/* Keeps the printable form of a text. *out is borrowed. 0, -ENOMEM, -EDQUOT. */
static int texts_keep(struct symbols *symbols, const char *text, const char **out)
{
	char shown[SYMBOLS_TEXT_MAX];
	size_t bytes = text_escape(shown, sizeof(shown), text);
	uint32_t id;
	int err = strings_intern(symbols->strings, shown, bytes, &id);

	if (!err)
		*out = strings_get(symbols->strings, id);
	return err;
}

/* The same for a place in a file: "[libfoo.so+0x1234]". */
static int texts_keep_location(struct symbols *symbols, const char *path, uint64_t offset,
			       const char **out)
{
	const char *slash = strrchr(path, '/');
	char text[SYMBOLS_TEXT_MAX];

	snprintf(text, sizeof(text), "[%.512s+0x%" PRIx64 "]", slash ? slash + 1 : path, offset);
	return texts_keep(symbols, text, out);
}

/* --- lookup ----------------------------------------------------------------------------------- */

/* Asks a worker about an address in a file, and handles a worker that ends before it answers. */

/*
 * A worker ends either because all of its files together exhaust its memory, or because of hostile
 * input. The same question is therefore sent once more to a new worker that has only this file. If
 * that worker ends as well, the file's DWARF is given up, or demangling its names if the question
 * needed no DWARF.
 *
 * A hostile file may also take just less than a worker's time limit at every address, so the time
 * for all questions about a file is limited too.
 */

#define LOOK_NS 10000000000ull /* between two checks of a worker's memory */
/* CPU time per file; 100,000 addresses in CPython take 2 s */
#define SPENT_MAX_NS 10000000000ull

/* Makes sure that a worker runs. A new worker has no files yet. 0, -errno. */
static int helper_ensure(struct symbols *symbols, struct helper *helper)
{
	uint64_t generation;
	int err = worker_generation(helper->worker, &generation);

	if (!err && generation != helper->generation) {
		helper->generation = generation;
		helper->handed = 0;
		helper->looked_ns = clock_ns(CLOCK_MONOTONIC);
		symbols->stats.worker_starts++;
	}
	if (err)
		log_debug("names are not looked up: %s", error_reason(err));
	return err;
}

static void names_give_up(struct symbols *symbols, struct file *file)
{
	symbols->stats.names_given_up += !file->plain_names;
	file->plain_names = 1;
}

static void dwarf_give_up(struct symbols *symbols, struct file *file, int err)
{
	log_debug("%s: its DWARF is not used: %s", file->path, error_reason(err));
	file->dwarf = FILE_DWARF_NONE;
	symbols->stats.dwarf_given_up++;
}

/*
 * Sends the file's DWARF to the worker, once. 0, also if there is none; -errno: the worker has
 * ended.
 */
static int dwarf_hand(struct symbols *symbols, struct file *file)
{
	int fd, alternate_fd, err;

	if (file->dwarf == FILE_DWARF_NONE ||
	    (file->dwarf == FILE_DWARF_THERE && file->generation == symbols->dwarf.generation))
		return 0;
	file->dwarf = FILE_DWARF_NONE;
	if (elf_file_dwarf(file->elf, &fd, &alternate_fd))
		return 0;
	err = worker_open(symbols->dwarf.worker, file->number, fd, alternate_fd);
	file->dwarf = FILE_DWARF_THERE;
	if (err)
		return err;
	file->generation = symbols->dwarf.generation;
	symbols->dwarf.handed++;
	return 0;
}

/* Charges the worker's time to the file, whatever the result. */
static void time_spend(struct symbols *symbols, struct file *file, uint64_t before_ns)
{
	file->spent_ns += worker_spent_ns(symbols->dwarf.worker) - before_ns;
	if (file->spent_ns <= SPENT_MAX_NS)
		return;
	if (file->dwarf == FILE_DWARF_THERE)
		dwarf_give_up(symbols, file, -ETIMEDOUT);
	names_give_up(symbols, file);
}

/*
 * libdw keeps everything it has read of a file and frees nothing. A worker that holds too much is
 * therefore stopped, and the next one reads what is still needed. What a worker reads within
 * LOOK_NS is not limited.
 */
static void dwarf_trim(struct symbols *symbols)
{
	struct helper *helper = &symbols->dwarf;
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), held;

	if (now_ns - helper->looked_ns < LOOK_NS)
		return;
	helper->looked_ns = now_ns;
	held = worker_held_bytes(helper->worker);
	if (held <= symbols->dwarf_max)
		return;
	log_debug("the DWARF reader holds %" PRIu64 " KiB: it is restarted", held >> 10);
	worker_stop(helper->worker);
}

/*
 * One attempt. Returns the number of frames; -EAGAIN; -errno: the worker has ended or must be
 * stopped.
 */
static int frames_try(struct symbols *symbols, struct file *file, uint64_t vaddr,
		      const char *symbol, uint64_t until_ns,
		      struct worker_frame frames[WORKER_FRAMES_MAX])
{
	int count = dwarf_hand(symbols, file);

	if (count)
		return count;
	if (file->plain_names)
		symbol = "";
	if (file->dwarf == FILE_DWARF_NONE && !demangle_wanted(symbol))
		return 0;
	count = worker_frames(symbols->dwarf.worker,
			      file->dwarf == FILE_DWARF_THERE ? file->number : 0, vaddr, symbol,
			      until_ns, frames);
	if (count != -ENOENT && count != -ENOEXEC)
		return count;
	/* Its DWARF cannot be read; the symbol may still need demangling. */
	file->dwarf = FILE_DWARF_NONE;
	return frames_try(symbols, file, vaddr, symbol, until_ns, frames);
}

/*
 * The frames at vaddr of a file that was read (file_read()), innermost first, from its DWARF.
 * symbol names the outermost frame if the DWARF does not. Texts are borrowed until the next call;
 * "": unknown. Returns the number of frames; 0: nothing is known beyond symbol, which needs no
 * demangling or cannot be demangled; -EAGAIN: no answer by until_ns, and the next question must be
 * the same.
 */
static int lookup_frames(struct symbols *symbols, struct file *file, uint64_t vaddr,
			 const char *symbol, uint64_t until_ns,
			 struct worker_frame frames[WORKER_FRAMES_MAX])
{
	error_clear();
	/*
	 * Four attempts: with a shared worker, with a worker of its own, without DWARF, and without
	 * demangling.
	 */
	for (int attempt = 0; attempt < 4; attempt++) {
		uint64_t before_ns = worker_spent_ns(symbols->dwarf.worker);

		if (helper_ensure(symbols, &symbols->dwarf))
			return 0;
		uint32_t others =
			symbols->dwarf.handed - (file->generation == symbols->dwarf.generation);
		int count = frames_try(symbols, file, vaddr, symbol, until_ns, frames);
		if (count == -EAGAIN)
			return count;
		if (file->dwarf == FILE_DWARF_THERE || !file->plain_names)
			time_spend(symbols, file, before_ns);
		if (count >= 0) {
			dwarf_trim(symbols); /* the texts stay valid */
			return count;
		}
		worker_stop(symbols->dwarf.worker);
		if (file->dwarf == FILE_DWARF_NONE)
			names_give_up(symbols, file);
		else if (!others || count == -ETIMEDOUT)
			dwarf_give_up(symbols, file, count);
	}
	return 0;
}

/* Reports the reason, once: from now on only DWARF names the functions of the file. */
static void tables_give_up(struct symbols *symbols, struct file *file, int err)
{
	if (file->tables != FILE_TABLES_GIVEN_UP && file->tables != FILE_TABLES_LARGE) {
		log_info("%s: not all of its function names are known: %s", file->path,
			 err == -ENOEXEC ? "its symbol tables are too large or damaged"
					 : error_reason(err));
		symbols->stats.tables_given_up++;
	}
	file->tables = err == -ENOEXEC ? FILE_TABLES_LARGE : FILE_TABLES_GIVEN_UP;
}

/* Sends the file to the worker, once. 0; -errno: the worker has ended. */
static int tables_hand(struct symbols *symbols, struct file *file)
{
	struct helper *helper = &symbols->tables;

	if (file->tables_generation == helper->generation)
		return 0;
	int err = worker_open_tables(helper->worker, file->number, elf_file_fd(file->elf),
				     elf_file_debug_fd(file->elf), symbols->tables_max);
	if (err)
		return err;
	file->tables_generation = helper->generation;
	helper->handed++;
	return 0;
}

/*
 * The name of the function symbol at vaddr of such a file, as in its tables; "" for none. *name is
 * borrowed until the next call. 0; -EAGAIN, as above.
 */
static int lookup_symbol(struct symbols *symbols, struct file *file, uint64_t vaddr,
			 uint64_t until_ns, const char **name)
{
	struct helper *helper = &symbols->tables;

	error_clear();
	*name = "";
	/* Two attempts: with a shared worker, and with a worker of its own. */
	for (int attempt = 0; attempt < 2 && file->tables != FILE_TABLES_GIVEN_UP; attempt++) {
		uint64_t before_ns = worker_spent_ns(helper->worker);

		if (helper_ensure(symbols, helper))
			return 0;
		uint32_t others = helper->handed - (file->tables_generation == helper->generation);
		int err = tables_hand(symbols, file)
				  ?: worker_symbol(helper->worker, file->number, vaddr, until_ns,
						   name);
		if (err == -EAGAIN)
			return err;
		file->tables_ns += worker_spent_ns(helper->worker) - before_ns;
		if (!err && file->tables == FILE_TABLES_UNKNOWN)
			file->tables = FILE_TABLES_READ;
		if (err == -ENOEXEC)
			tables_give_up(symbols, file, err);
		if (file->tables_ns > SPENT_MAX_NS)
			tables_give_up(symbols, file, -ETIMEDOUT);
		if (!err || err == -ENOEXEC)
			return 0;
		worker_stop(helper->worker);
		if (!others || err == -ETIMEDOUT)
			tables_give_up(symbols, file, err);
	}
	return 0;
}

/* Drops a question whose answer is no longer needed: of lookup_symbol(); of either. */
static void lookup_symbol_abandon(struct symbols *symbols)
{
	worker_stop(symbols->tables.worker);
}

static void lookup_abandon(struct symbols *symbols)
{
	lookup_symbol_abandon(symbols);
	worker_stop(symbols->dwarf.worker);
}

/* --- fetched ---------------------------------------------------------------------------------- */

/* Debug files from debuginfod servers (fetch.h), for files that have none. */

/*
 * A file is asked for when an address in it is first looked up. Its debug file may have its common
 * part in another one (dwz), which is then asked for, too.
 */

struct symbols;

struct file;

#define FETCHES_MAX 2u /* the debug file, its common part */

/* Nothing more can be fetched: files have the names that they have without. */
static void fetch_end(struct symbols *symbols)
{
	log_info("--debuginfod: the process that fetches debug files has ended");
	fetch_free(symbols->fetch);
	symbols->fetch = NULL;
}

/* Asks for what is missing. 0: it is asked, or nothing is missing; -EAGAIN: ask later. */
static int file_ask(struct symbols *symbols, struct file *file)
{
	char build_id[ELF_BUILD_ID_HEX_MAX];

	file->fetch = FILE_FETCH_DONE;
	if (file->fetches == FETCHES_MAX || !elf_file_lacks_debug(file->elf, build_id))
		return 0;
	int err = fetch_ask(symbols->fetch, file->number, build_id);
	if (err == -EAGAIN) {
		file->fetch = FILE_FETCH_UNKNOWN;
		return err;
	}
	if (err) {
		fetch_end(symbols);
		return 0;
	}
	file->fetch = FILE_FETCH_ASKED;
	file->fetches++;
	symbols->fetches++;
	return 0;
}

#define NETWORK_REMEDY                                                                             \
	"check the server's URL and https_proxy, which sudo keeps with --preserve-env=https_proxy"

/* Says once that servers cannot be reached. That they have no such file is usual. */
static void failure_tell(struct symbols *symbols, const struct file *file, int err)
{
	if (err == -ENOENT || symbols->fetch_told)
		return;
	symbols->fetch_told = true;
	log_info("--debuginfod: no debug file was fetched for %s: %s; " NETWORK_REMEDY, file->path,
		 strerror(-err));
}

/* fd: the file, which is taken; -errno: there is none. */
static void answer_take(struct symbols *symbols, uint32_t number, int fd)
{
	struct file *file = files_find(symbols->files, number);
	int err = fd < 0 ? fd : 0;

	symbols->fetches--;
	if (!file) {
		descriptor_close(fd);
		return;
	}
	if (err)
		failure_tell(symbols, file, err);
	err = err ?: elf_file_take_debug(file->elf, fd);
	file->fetch = FILE_FETCH_DONE;
	if (err) {
		log_debug("%s: no debug file was fetched: %s", file->path, error_reason(err));
		return;
	}
	log_debug("%s: its debug file was fetched", file->path);
	files_renew(symbols->files, file);
	file->fetch = FILE_FETCH_UNKNOWN;
}

/* Takes the next answer. 0; -EAGAIN: none by until_ns; -EIO. */
static int answer_wait(struct symbols *symbols, uint64_t until_ns)
{
	uint32_t number;
	int fd, err = fetch_answer(symbols->fetch, until_ns, &number, &fd);

	if (!err)
		answer_take(symbols, number, fd);
	else if (err != -EAGAIN)
		fetch_end(symbols);
	return err;
}

/*
 * Asks for the debug file of a file whose headers are read, and waits for the answer. 0: nothing is
 * to be waited for; -EAGAIN: no answer by until_ns (CLOCK_MONOTONIC; 0: do not wait).
 */
static int fetched_wait(struct symbols *symbols, struct file *file, uint64_t until_ns)
{
	int err = 0;

	while (symbols->fetch && symbols->fetches && !answer_wait(symbols, 0))
		continue;
	while (symbols->fetch && file->fetch != FILE_FETCH_DONE && !err)
		err = file->fetch == FILE_FETCH_UNKNOWN ? file_ask(symbols, file)
							: answer_wait(symbols, until_ns);
	return err == -EAGAIN ? err : 0;
}

/* --- symbols ---------------------------------------------------------------------------------- */

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
	int err = worker_new(&symbols->dwarf.worker)
		  ?: worker_new(&symbols->tables.worker)
		  ?: files_new(&symbols->files)
		  ?: strings_new_in(&symbols->strings, &symbols->names);
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
	if (symbols->fetch && symbols->fetches)
		log_info("--debuginfod: %u files have not come by the end; " NETWORK_REMEDY,
			 symbols->fetches);
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
		err = err
			      ?: texts_keep(symbols,
					    found[i].filename[0] ? found[i].filename : path,
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

	if (!asked->file)
		return 0;
	int err = asked->has_symbol ? 0
				    : symbol_name(symbols, asked->file, asked->vaddr, until_ns,
						  asked->symbol);
	if (err)
		return err;
	asked->has_symbol = 1;
	symbols->plain_gave_up = 0;
	int count =
		lookup_frames(symbols, asked->file, asked->vaddr, asked->symbol, until_ns, found);
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
	return asked_begin(symbols, module, offset, ask->share)
		       ?: asked_finish(symbols, ask->until_ns);
}

static uint64_t module_offset(const struct module *module, uint64_t address)
{
	return address - module->start + module->offset;
}

static bool share_is_used(const struct symbols_ask *ask)
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
	int err;

	if (modules->jit_count && share_is_used(ask))
		return -ETIME;
	const char *name = jit_name(modules, address);
	share_spend(ask, began_ns);
	*frame = (struct symbols_frame){0};
	if (name && name[0])
		err = texts_keep(symbols, name, &frame->function);
	else if (module->inode)
		err = texts_keep_location(symbols, module->path, module_offset(module, address),
					  &frame->function);
	else
		err = texts_keep(symbols, module->path, &frame->function);
	return err ?: texts_keep(symbols, module->path, &frame->filename) ?: 1;
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

	if (cache_find(&symbols->cache, module->file->number, offset, &known))
		return 0;
	if (share_is_used(ask))
		return -ETIME;
	int err = fetched_wait(symbols, module->file, ask->until_ns);
	if (err)
		return err;
	uint64_t began_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
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

	if (!module || !capacity)
		return 0;
	if (!ask)
		ask = &ask_unlimited;
	if (!module->file || file_read(module->file))
		return elsewhere_resolve(symbols, modules, module, address, ask, &frames[0]);
	uint64_t offset = module_offset(module, address);
	int err = file_resolve(symbols, module, offset, ask);
	if (err)
		return err;
	uint32_t count = cache_find(&symbols->cache, module->file->number, offset, &known);
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
	int err = symbol[0] ? texts_keep(symbols, symbol, &frame->function)
			    : texts_keep_location(symbols, module->path, offset, &frame->function);
	return err ?: texts_keep(symbols, module->path, &frame->filename) ?: 1;
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

bool symbols_is_worker(const struct symbols *symbols, pid_t pid)
{
	return worker_pid(symbols->dwarf.worker) == pid ||
	       worker_pid(symbols->tables.worker) == pid;
}

void symbols_stats(const struct symbols *symbols, struct symbols_stats *out)
{
	*out = symbols->stats;
	out->files = files_count(symbols->files);
}

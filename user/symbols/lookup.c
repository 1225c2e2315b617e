/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker ends either because all of its files together exhaust its memory, or because of hostile
 * input. The same question is therefore sent once more to a new worker that has only this file. If
 * that worker ends as well, the file's DWARF is given up, or demangling its names if the question
 * needed no DWARF.
 *
 * A hostile file may also take just less than a worker's time limit at every address, so the time
 * for all questions about a file is limited too.
 */
#include "symbols/lookup.h"

#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/error.h"
#include "symbols/demangle.h"

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

int lookup_frames(struct symbols *symbols, struct file *file, uint64_t vaddr, const char *symbol,
		  uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX])
{
	error_clear();
	/*
	 * Four attempts: with a shared worker, with a worker of its own, without DWARF, and without
	 * demangling.
	 */
	for (int attempt = 0; attempt < 4; attempt++) {
		uint64_t before_ns = worker_spent_ns(symbols->dwarf.worker);
		uint32_t others;
		int count;

		if (helper_ensure(symbols, &symbols->dwarf))
			return 0;
		others = symbols->dwarf.handed - (file->generation == symbols->dwarf.generation);
		count = frames_try(symbols, file, vaddr, symbol, until_ns, frames);
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
	int err;

	if (file->tables_generation == helper->generation)
		return 0;
	err = worker_open_tables(helper->worker, file->number, elf_file_fd(file->elf),
				 elf_file_debug_fd(file->elf), symbols->tables_max);
	if (err)
		return err;
	file->tables_generation = helper->generation;
	helper->handed++;
	return 0;
}

int lookup_symbol(struct symbols *symbols, struct file *file, uint64_t vaddr, uint64_t until_ns,
		  const char **name)
{
	struct helper *helper = &symbols->tables;

	error_clear();
	*name = "";
	/* Two attempts: with a shared worker, and with a worker of its own. */
	for (int attempt = 0; attempt < 2 && file->tables != FILE_TABLES_GIVEN_UP; attempt++) {
		uint64_t before_ns = worker_spent_ns(helper->worker);
		uint32_t others;
		int err;

		if (helper_ensure(symbols, helper))
			return 0;
		others = helper->handed - (file->tables_generation == helper->generation);
		err = tables_hand(symbols, file);
		if (!err)
			err = worker_symbol(helper->worker, file->number, vaddr, until_ns, name);
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

void lookup_symbol_abandon(struct symbols *symbols)
{
	worker_stop(symbols->tables.worker);
}

void lookup_abandon(struct symbols *symbols)
{
	lookup_symbol_abandon(symbols);
	worker_stop(symbols->dwarf.worker);
}

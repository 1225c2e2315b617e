/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that ends has either run out of memory, which all files that it has are to blame for, or
 * has met something hostile. So the same question goes once more to a fresh one, which has this
 * file alone; if that ends as well, the file's DWARF is given up, and its names if it was about a
 * name alone.
 *
 * A file may also be made to cost just less than a worker's life, at every address: so it has a
 * time for all its questions.
 */
#include "symbols/ask.h"

#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/error.h"
#include "symbols/demangle.h"

#define LOOK_NS 10000000000ull /* between two looks at a worker's memory */
/* of CPU time, on one file; 100,000 places in CPython take 2 s */
#define SPENT_MAX_NS 10000000000ull

/* A worker is there; what is known of another one's files is forgotten. 0, -errno. */
static int helper_meet(struct symbols *symbols, struct helper *helper)
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
 * Has the worker have the file's DWARF. 0, also if there is none; else the worker has ended:
 * -errno.
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

/* What is found costs the file's time, whatever comes of it. */
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
 * libdw keeps all that it has read of a file, and lets go of nothing. So a worker that has too much
 * ends, and the next one reads again what is still asked for. What one reads within LOOK_NS does
 * not matter.
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
	log_debug("what reads DWARF holds %" PRIu64 " KiB: it begins anew", held >> 10);
	worker_stop(helper->worker);
}

/* Once. -EAGAIN; -errno: the worker has ended, or is to. */
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
	/* It has none that can be read; its symbol is still to be demangled. */
	file->dwarf = FILE_DWARF_NONE;
	return frames_try(symbols, file, vaddr, symbol, until_ns, frames);
}

int ask_frames(struct symbols *symbols, struct file *file, uint64_t vaddr, const char *symbol,
	       uint64_t until_ns, struct worker_frame frames[WORKER_FRAMES_MAX])
{
	error_clear();
	/*
	 * With the DWARF shared, alone, without DWARF, and without names there is nothing left to
	 * ask.
	 */
	for (int attempt = 0; attempt < 4; attempt++) {
		uint64_t before_ns = worker_spent_ns(symbols->dwarf.worker);
		uint32_t others;
		int count;

		if (helper_meet(symbols, &symbols->dwarf))
			return 0;
		others = symbols->dwarf.handed - (file->generation == symbols->dwarf.generation);
		count = frames_try(symbols, file, vaddr, symbol, until_ns, frames);
		if (count == -EAGAIN)
			return count;
		if (file->dwarf == FILE_DWARF_THERE || !file->plain_names)
			time_spend(symbols, file, before_ns);
		if (count >= 0) {
			dwarf_trim(symbols); /* the texts are still there */
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

/* Says why, once: the addresses of the file have no names of functions but what DWARF says. */
static void tables_give_up(struct symbols *symbols, struct file *file, int err)
{
	if (file->tables != FILE_TABLES_GIVEN_UP && file->tables != FILE_TABLES_LARGE) {
		log_info("%s: not all names of its functions are known: %s", file->path,
			 err == -ENOEXEC ? "its symbol tables are too large" : error_reason(err));
		symbols->stats.tables_given_up++;
	}
	file->tables = err == -ENOEXEC ? FILE_TABLES_LARGE : FILE_TABLES_GIVEN_UP;
}

/* Has the worker have the file. 0; -errno: it has ended. */
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

int ask_symbol(struct symbols *symbols, struct file *file, uint64_t vaddr, uint64_t until_ns,
	       const char **name)
{
	struct helper *helper = &symbols->tables;

	error_clear();
	*name = "";
	/* With its tables among those of others, and alone. */
	for (int attempt = 0; attempt < 2 && file->tables != FILE_TABLES_GIVEN_UP; attempt++) {
		uint64_t before_ns = worker_spent_ns(helper->worker);
		uint32_t others;
		int err;

		if (helper_meet(symbols, helper))
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

void ask_symbol_abandon(struct symbols *symbols)
{
	worker_stop(symbols->tables.worker);
}

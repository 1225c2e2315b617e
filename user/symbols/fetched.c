/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file is asked for when an address in it is first looked up. Its debug file may have its common
 * part in another one (dwz), which is then asked for, too.
 */
#include "symbols/fetched.h"

#include <errno.h>
#include <unistd.h>

#include "base/error.h"
#include "fetch/fetch.h"
#include "symbols/symbols_state.h"

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
	int err;

	file->fetch = FILE_FETCH_DONE;
	if (file->fetches == FETCHES_MAX || !elf_file_lacks_debug(file->elf, build_id))
		return 0;
	err = fetch_ask(symbols->fetch, file->number, build_id);
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

/* fd: the file, which is taken; -errno: there is none. */
static void answer_take(struct symbols *symbols, uint32_t number, int fd)
{
	struct file *file = files_find(symbols->files, number);
	int err = fd < 0 ? fd : 0;

	symbols->fetches--;
	if (!file) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (!err)
		err = elf_file_take_debug(file->elf, fd);
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

int fetched_wait(struct symbols *symbols, struct file *file, uint64_t until_ns)
{
	int err = 0;

	while (symbols->fetch && symbols->fetches && !answer_wait(symbols, 0))
		continue;
	while (symbols->fetch && file->fetch != FILE_FETCH_DONE && !err)
		err = file->fetch == FILE_FETCH_UNKNOWN ? file_ask(symbols, file)
							: answer_wait(symbols, until_ns);
	return err == -EAGAIN ? err : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ELF file with DWARF, or, if it is not one, a name to demangle, passed to the worker process.
 * Whatever happens to the worker (libdw and libiberty do not survive all files and names), its
 * owner gets a response that satisfies the contract.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "object/symbols/worker.h"

#define ADDRESSES 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A worker that ends because of a defect cannot start a symbolizer, and would wait for one. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "symbolize=0";
}

/* Queries one place. Returns 0, or the worker has ended. */
static int frames_use(struct worker *worker, uint32_t number, uint64_t vaddr, const char *symbol)
{
	struct worker_frame frames[WORKER_FRAMES_MAX];
	int count = worker_frames(worker, number, vaddr, symbol, UINT64_MAX, frames);

	if (count > (int)WORKER_FRAMES_MAX ||
	    (!count && symbol[0] && strlen(symbol) < WORKER_NAME_MAX))
		abort();
	for (int i = 0; i < count; i++)
		if (strlen(frames[i].function) >= WORKER_NAME_MAX ||
		    strlen(frames[i].filename) >= WORKER_NAME_MAX)
			abort();
	return count < 0 ? count : 0;
}

static void file_use(struct worker *worker, struct elf_file *file)
{
	static uint32_t number; /* of the file; no number is used twice */
	int fd, alternate;
	uint64_t vaddr;

	if (elf_file_dwarf(file, &fd, &alternate))
		return;
	if (worker_open(worker, ++number, fd, alternate) || elf_file_vaddr(file, 0x1000, &vaddr))
		return;
	for (uint64_t i = 0; i < ADDRESSES && !frames_use(worker, number, vaddr + 7 * i, ""); i++)
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct worker *worker;
	static unsigned runs;
	struct elf_file *file;
	int fd = memfd_create("elf", MFD_CLOEXEC);
	char *name;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size || (!worker && worker_new(&worker)))
		abort();
	if (++runs % 256 == 0)
		worker_stop(worker); /* it keeps every file */
	if (!elf_file_open(&file, fd, "/elf", "/nonexistent")) {
		file_use(worker, file);
		elf_file_close(file);
		return 0;
	}
	close(fd);
	name = strndup((const char *)data, size);
	if (!name)
		abort();
	frames_use(worker, 0, 0, name);
	free(name);
	return 0;
}

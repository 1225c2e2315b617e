/* SPDX-License-Identifier: Apache-2.0 */
/* The planner of native allocators on any file. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/events.h"
#include "object/elf/elf_file.h"
#include "probe/malloc/plan_native.h"

static void check(int holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct elf_file *file;
	struct plan plan;
	size_t written = 0;

	check(fd >= 0);
	while (written < bytes) {
		ssize_t n = write(fd, data + written, bytes - written);

		check(n > 0);
		written += (size_t)n;
	}
	if (elf_file_open(&file, fd, "fuzz", "/nonexistent")) {
		close(fd);
		return 0;
	}
	if (!plan_native(file, NULL, &plan)) {
		for (size_t i = 0; i < plan.count; i++) {
			const struct plan_site *site = &plan.sites[i];

			check(site->offset < bytes &&
			      (site->cookie >> 8 & 0xff) == EVENT_API_NATIVE);
			check((site->cookie & 0xff) == site->op &&
			      memchr(site->why, 0, sizeof(site->why)));
		}
		plan_free(&plan);
	}
	elf_file_close(file);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "process/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define PAGE 4096u

int memory_read(pid_t pid, uint64_t address, void *out, size_t bytes)
{
	size_t done = 0;

	if (bytes && address > UINT64_MAX - (bytes - 1))
		return -EFAULT;
	/* The kernel returns a short count at an unmapped page, and at 2 GiB. */
	while (done < bytes) {
		struct iovec local = {(char *)out + done, bytes - done};
		struct iovec remote = {(void *)(uintptr_t)(address + done), bytes - done};
		ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);

		if (n > 0)
			done += (size_t)n;
		else if (n == 0)
			return -EFAULT;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int memory_read_u64(pid_t pid, uint64_t address, uint64_t *out)
{
	return memory_read(pid, address, out, sizeof(*out));
}

/* Reads at most to the end of a page at a time: the next page may not be mapped. */
int memory_read_text(pid_t pid, uint64_t address, char *out, size_t bytes)
{
	size_t have = 0;
	int err = 0;

	while (!err && have < bytes - 1 && strnlen(out, have) == have) {
		size_t more = bytes - 1 - have, page = PAGE - (address + have) % PAGE;

		if (more > page)
			more = page;
		err = memory_read(pid, address + have, out + have, more);
		have += err ? 0 : more;
	}
	out[have] = 0;
	return err;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds a program before main() until a byte is read from the FIFO that HOLD names: by LD_PRELOAD,
 * or linked into it. Then every file that the program is linked with is mapped, and recorders can
 * attach. Programs that it starts are not held.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void hold(void)
{
	const char *path = getenv("HOLD");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char byte;

	if (fd < 0)
		return;
	if (read(fd, &byte, 1) < 0)
		_exit(1);
	close(fd);
	unsetenv("HOLD");
}

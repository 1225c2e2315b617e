/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library to be preloaded into programs that do not tell what they have allocated: at each
 * SIGRTMAX the process, if it is at rest then, writes into $ALLOCATED/PID what the C library says
 * it has handed out, in bytes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[200];

static void tell(int number)
{
	struct mallinfo2 info = mallinfo2();
	char path[300], half[310], line[40];

	(void)number;
	snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid());
	snprintf(half, sizeof(half), "%s.new", path);
	int fd = open(half, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int length = snprintf(line, sizeof(line), "%zu\n", info.uordblks + info.hblkhd);

	if (fd >= 0 && write(fd, line, (size_t)length) == length)
		rename(half, path);
	if (fd >= 0)
		close(fd);
}

__attribute__((constructor)) static void begin(void)
{
	const char *value = getenv("ALLOCATED");

	if (!value)
		return;
	snprintf(folder, sizeof(folder), "%s", value);
	sigaction(SIGRTMAX, &(struct sigaction){.sa_handler = tell, .sa_flags = SA_RESTART}, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "util/status_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_BYTES    512
#define WIDTH_DEFAULT 80 /* columns, for a terminal that does not report them */
#define CLEAR         "\r\033[K"

static int shown;

bool status_line_is_possible(void)
{
	const char *kind = getenv("TERM");

	return isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0 &&
	       tcgetpgrp(STDERR_FILENO) == getpgrp();
}

size_t status_line_width(void)
{
	struct winsize size;
	size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? WIDTH_DEFAULT
									       : size.ws_col;

	/* The last column stays free: a cursor after it may wrap to the next line. */
	return width - 1;
}

void status_line_show(const char *text)
{
	char line[LINE_BYTES];

	snprintf(line, sizeof(line), CLEAR "%.*s", (int)status_line_width(), text);
	shown = 1;
	fputs(line, stderr);
	fflush(stderr);
}

void status_line_clear(void)
{
	if (!shown)
		return;
	shown = 0;
	fputs(CLEAR, stderr);
	fflush(stderr);
}

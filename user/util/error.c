/* SPDX-License-Identifier: Apache-2.0 */
#include "util/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "util/status_line.h"
#include "util/terminal.h"
#include "util/text.h"

#define REASON_BYTES 256
#define LINE_BYTES   2048

static _Thread_local struct {
	int err;
	char text[REASON_BYTES];
} last;

int log_level = 1;

int error_set(int err, const char *format, ...)
{
	/* the arguments may point into last.text: a reason that wraps a reason */
	char text[REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(last.text, text, sizeof(text));
	last.err = err;
	return err;
}

void error_clear(void)
{
	last.err = 0;
}

void error_forget(int err)
{
	if (last.err == err)
		last.err = 0;
}

static bool is_stored(int err)
{
	return last.err == err && last.text[0];
}

const char *error_reason(int err)
{
	return is_stored(err) ? last.text : strerror(err < 0 ? -err : err);
}

/*
 * Writes one line, broken for a terminal; no other thread can write in the middle of it. Elsewhere
 * it is one write. Control characters are escaped.
 */
static void print_line(const char *text)
{
	char line[4 * LINE_BYTES + 8];
	size_t length = text_escape(line, sizeof(line) - 1, text);
	struct terminal terminal;
	FILE *out = stderr;

	line[length++] = '\n';
	flockfile(stderr);
	status_line_clear();
	terminal_begin(&terminal, &out);
	fwrite(line, 1, length, out);
	terminal_end(&terminal);
	fflush(stderr);
	funlockfile(stderr);
}

/*
 * Where descriptors are few, any step may be the one that fails; none of them knows a remedy. A
 * leaf with a reason of its own means another limit. Any file may be on a read-only file system.
 */
static const char *remedy_of_number(int err)
{
	if (err == -EMFILE && !is_stored(err))
		return "; allow it more descriptors: ulimit -n 1024";
	return err == -EROFS ? "; give a path where files can be written" : "";
}

int error_print(int err, const char *remedy, const char *what, ...)
{
	char text[LINE_BYTES] = "tracer: ";
	size_t used = strlen(text);
	va_list args;

	va_start(args, what);
	vsnprintf(text + used, sizeof(text) - used, what, args);
	va_end(args);
	used = strlen(text);
	snprintf(text + used, sizeof(text) - used, ": %s%s%s%s", error_reason(err),
		 remedy ? "; " : "", remedy ? remedy : "", remedy_of_number(err));
	print_line(text);
	last.err = 0; /* a later error with the same number has another reason */
	return err;
}

static void log_line(const char *format, va_list args)
{
	char text[LINE_BYTES] = "tracer: ";
	size_t used = strlen(text);

	vsnprintf(text + used, sizeof(text) - used, format, args);
	print_line(text);
}

void log_info(const char *format, ...)
{
	va_list args;

	if (log_level < 1)
		return;
	va_start(args, format);
	log_line(format, args);
	va_end(args);
}

void log_debug(const char *format, ...)
{
	va_list args;

	if (log_level < 2)
		return;
	va_start(args, format);
	log_line(format, args);
	va_end(args);
}

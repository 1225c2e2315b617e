/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/kernel/load_log.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

#define PREFIX    "libbpf: "
#define LOG_BEGIN "-- BEGIN PROG LOAD LOG --\n"
#define LOG_END   "-- END PROG LOAD LOG --"

/* libbpf's callback has no context argument. */
static _Thread_local struct {
	struct load_log *out;
	libbpf_print_fn_t next;
} taking;

/* Statistics that the verifier prints after its reason. */
static bool is_statistics(const char *line, size_t bytes)
{
	static const char *const begins[] = {"processed ", "verification time ", "stack depth ",
					     "max_states"};

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++)
		if (bytes >= strlen(begins[i]) && !memcmp(line, begins[i], strlen(begins[i])))
			return 1;
	return !bytes;
}

/* The last line before end that is not statistics. */
static const char *reason_find(const char *log, const char *end, size_t *bytes)
{
	while (end > log) {
		const char *line = memrchr(log, '\n', end - log);

		line = line ? line + 1 : log;
		*bytes = end - line;
		if (!is_statistics(line, *bytes))
			return line;
		end = line > log ? line - 1 : log;
	}
	return NULL;
}

/* "prog 'NAME': …" → NAME */
static int program_name(const char *message, const char **name)
{
	if (strncmp(message, "prog '", 6))
		return 0;
	*name = message + 6;
	const char *end = strchr(*name, '\'');
	return end ? (int)(end - *name) : 0;
}

void load_log_take(struct load_log *out, const char *message)
{
	const char *log = strstr(message, LOG_BEGIN), *end, *line, *name = "";
	size_t bytes;

	if (out->verifier)
		return;
	if (!strncmp(message, PREFIX, strlen(PREFIX)))
		message += strlen(PREFIX);
	if (!log) {
		/*
		 * A failure to raise RLIMIT_MEMLOCK does not matter since 5.11, but is reported
		 * first.
		 */
		if (!out->text[0] && !strstr(message, "RLIMIT_MEMLOCK"))
			snprintf(out->text, sizeof(out->text), "%.*s", (int)strcspn(message, "\n"),
				 message);
		return;
	}
	log += strlen(LOG_BEGIN);
	end = strstr(log, LOG_END);
	line = reason_find(log, end ? end : log + strlen(log), &bytes);
	if (!line)
		return;
	int length = program_name(message, &name);
	snprintf(out->text, sizeof(out->text), "%.*s: %.*s", length, name,
		 bytes < LOAD_LOG_SIZE ? (int)bytes : LOAD_LOG_SIZE, line);
	out->verifier = 1;
}

int load_log_explains(int err)
{
	return err != -EPERM && err != -ENOSYS && err != -ENOMEM && err != -EMFILE &&
	       err != -ENFILE;
}

static int message_take(enum libbpf_print_level level, const char *format, va_list arguments)
{
	va_list copy;
	char *text;

	if (taking.out && level == LIBBPF_WARN) {
		va_copy(copy, arguments);
		if (vasprintf(&text, format, copy) >= 0) {
			load_log_take(taking.out, text);
			free(text);
		}
		va_end(copy);
	}
	return taking.next ? taking.next(level, format, arguments) : 0;
}

void load_log_begin(struct load_log *out)
{
	taking.out = out;
	taking.next = libbpf_set_print(message_take);
}

void load_log_end(void)
{
	libbpf_set_print(taking.next);
	taking.out = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of a few lines of assembly, made when the test runs. */
#pragma once

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/elf/elf_file.h"

/*
 * Assembles the text and links it into a library, with further options of cc. No debug file of it
 * is searched for. Without cc the test is skipped; text that cannot be assembled fails it. The
 * caller closes the file.
 */
static struct elf_file *__attribute__((format(printf, 2, 3)))
assembly_open(const char *options, const char *format, ...)
{
	char directory[] = "/tmp/test-assembly-XXXXXX", source[64], path[64], command[512];
	struct elf_file *file = NULL;
	va_list args;
	FILE *out;
	int fd, err;

	if (system("command -v cc >/dev/null")) {
		print_message("no cc on this machine\n");
		skip();
	}
	assert_non_null(mkdtemp(directory));
	snprintf(source, sizeof(source), "%s/a.s", directory);
	snprintf(path, sizeof(path), "%s/liba.so", directory);
	out = fopen(source, "we");
	assert_non_null(out);
	va_start(args, format);
	vfprintf(out, format, args);
	va_end(args);
	fprintf(out, "\n.section .note.GNU-stack\n");
	assert_int_equal(fclose(out), 0);
	snprintf(command, sizeof(command), "cc -shared -nostdlib %s -o %s %s", options, path,
		 source);
	err = system(command);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	unlink(source);
	unlink(path);
	rmdir(directory);
	assert_int_equal(err, 0);
	assert_true(fd >= 0);
	assert_int_equal(elf_file_open(&file, fd, path, "/nonexistent"), 0);
	return file;
}

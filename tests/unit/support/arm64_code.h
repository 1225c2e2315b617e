/* SPDX-License-Identifier: Apache-2.0 */
/* Machine code of arm64, assembled by clang when the test runs. */
#pragma once

#include <fcntl.h>
#include <gelf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CODE_MAX   1024
#define LABELS_MAX 96

struct arm64_code {
	uint8_t bytes[CODE_MAX];
	size_t count;
	struct {
		char name[32];
		uint64_t offset;
	} labels[LABELS_MAX];
	size_t label_count;
};

static inline void labels_take(struct arm64_code *code, Elf_Data *data, Elf *elf, size_t names)
{
	GElf_Sym symbol;

	for (int i = 0; gelf_getsym(data, i, &symbol); i++) {
		const char *name = elf_strptr(elf, names, symbol.st_name);

		if (!name || !name[0] || code->label_count == LABELS_MAX)
			continue;
		snprintf(code->labels[code->label_count].name, sizeof(code->labels[0].name), "%s",
			 name);
		code->labels[code->label_count++].offset = symbol.st_value;
	}
}

/* The offset of a label. */
static inline uint64_t arm64_label(const struct arm64_code *code, const char *name)
{
	for (size_t i = 0; i < code->label_count; i++)
		if (!strcmp(code->labels[i].name, name))
			return code->labels[i].offset;
	fail_msg("no label %s", name);
	return 0;
}

static inline void text_take(struct arm64_code *code, Elf *elf)
{
	Elf_Scn *section = NULL;
	size_t names;

	assert_int_equal(elf_getshdrstrndx(elf, &names), 0);
	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr header;
		Elf_Data *data;

		assert_non_null(gelf_getshdr(section, &header));
		if (header.sh_type == SHT_SYMTAB)
			labels_take(code, elf_getdata(section, NULL), elf, header.sh_link);
		if (strcmp(elf_strptr(elf, names, header.sh_name), ".text") != 0)
			continue;
		data = elf_getdata(section, NULL);
		assert_true(data && data->d_size <= CODE_MAX);
		memcpy(code->bytes, data->d_buf, data->d_size);
		code->count = data->d_size;
	}
}

/* Without clang the test is skipped; text that cannot be assembled fails it. */
static inline struct arm64_code arm64_assemble(const char *text)
{
	char folder[] = "/tmp/test-arm64-XXXXXX", source[64], object[64], command[256];
	struct arm64_code code = {.count = 0};
	FILE *out;
	Elf *elf;
	int fd;

	if (system("command -v clang >/dev/null")) {
		print_message("no clang on this machine\n");
		skip();
	}
	assert_non_null(mkdtemp(folder));
	snprintf(source, sizeof(source), "%s/a.s", folder);
	snprintf(object, sizeof(object), "%s/a.o", folder);
	out = fopen(source, "we");
	assert_non_null(out);
	fprintf(out, "%s\n", text);
	assert_int_equal(fclose(out), 0);
	/* ccache does not see that an included file has changed. */
	snprintf(command, sizeof(command),
		 "CCACHE_DISABLE=1 clang -target aarch64-linux-gnu -march=armv8.5-a -c -o %s %s",
		 object, source);
	assert_int_equal(system(command), 0);
	fd = open(object, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	text_take(&code, elf);
	elf_end(elf);
	close(fd);
	unlink(source);
	unlink(object);
	rmdir(folder);
	assert_true(code.count > 0);
	return code;
}

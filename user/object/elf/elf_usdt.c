/* SPDX-License-Identifier: Apache-2.0 */
#include "object/elf/elf_usdt.h"

#include <errno.h>
#include <string.h>

#include "object/elf/elf_file_state.h"
#include "util/error.h"

#define NOTE_TYPE 3
#define OWNER     "stapsdt"

struct note_header {
	uint32_t name_bytes, desc_bytes, type;
};

static int corrupt(const char *what)
{
	return error_set(-ENOEXEC, "corrupt USDT notes: %s", what);
}

/* A text and its NUL, at *at in the description, which is moved behind them; NULL: no NUL. */
static const char *text_take(const uint8_t *desc, size_t bytes, size_t *at)
{
	const char *text = (const char *)desc + *at;
	size_t length = strnlen(text, bytes - *at);

	if (length == bytes - *at)
		return NULL;
	*at += length + 1;
	return text;
}

static int desc_parse(const uint8_t *desc, size_t bytes, elf_usdt_fn *each, void *context)
{
	uint64_t addresses[3];
	size_t at = sizeof(addresses);

	if (bytes < sizeof(addresses))
		return corrupt("one is too short");
	memcpy(addresses, desc, sizeof(addresses));
	struct elf_usdt probe = (struct elf_usdt){
		.vaddr = addresses[0], .base = addresses[1], .semaphore = addresses[2]};
	probe.provider = text_take(desc, bytes, &at);
	probe.name = probe.provider ? text_take(desc, bytes, &at) : NULL;
	probe.arguments = probe.name ? text_take(desc, bytes, &at) : NULL;
	return probe.arguments ? each(context, &probe) : corrupt("a text has no end");
}

static size_t padded(uint32_t bytes)
{
	return ((size_t)bytes + 3) & ~(size_t)3;
}

int elf_usdt_parse(const uint8_t *notes, size_t bytes, elf_usdt_fn *each, void *context)
{
	struct note_header header;
	int err = 0;

	while (!err && bytes >= sizeof(header)) {
		const uint8_t *name = notes + sizeof(header);
		size_t left = bytes - sizeof(header), name_bytes;

		memcpy(&header, notes, sizeof(header));
		name_bytes = padded(header.name_bytes);
		if (name_bytes > left || header.desc_bytes > left - name_bytes)
			return corrupt("one exceeds the section");
		if (header.type == NOTE_TYPE && header.name_bytes == sizeof(OWNER) &&
		    !memcmp(name, OWNER, sizeof(OWNER)))
			err = desc_parse(name + name_bytes, header.desc_bytes, each, context);
		left -= name_bytes;
		name_bytes += padded(header.desc_bytes) < left ? padded(header.desc_bytes) : left;
		notes = name + name_bytes;
		bytes -= sizeof(header) + name_bytes;
	}
	return err;
}

struct moved {
	uint64_t base; /* of .stapsdt.base now; 0: not known */
	elf_usdt_fn *each;
	void *context;
};

static int moved_each(void *context, const struct elf_usdt *probe)
{
	const struct moved *moved = context;
	struct elf_usdt now = *probe;

	if (moved->base && probe->base) {
		now.vaddr += moved->base - probe->base;
		if (now.semaphore)
			now.semaphore += moved->base - probe->base;
	}
	return moved->each(moved->context, &now);
}

int elf_file_usdt(struct elf_file *file, elf_usdt_fn *each, void *context)
{
	struct moved moved = {.each = each, .context = context};
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(file->elf, ".note.stapsdt", &header);
	uint64_t bytes;

	if (!section)
		return 0;
	if (header.sh_size > ELF_USDT_BYTES_MAX)
		return corrupt("the section is too large");
	Elf_Data *data = elf_section_data(section, &header);
	if (!data)
		return -ENOEXEC;
	if (elf_file_section(file, ".stapsdt.base", &moved.base, &bytes))
		moved.base = 0;
	return elf_usdt_parse(data->d_buf, data->d_size, moved_each, &moved);
}

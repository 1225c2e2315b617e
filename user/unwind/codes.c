/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/codes.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "unwind/table.h"

uint8_t *unwind_bytes_read(int fd, uint64_t offset, size_t size)
{
	uint8_t *bytes = offset <= INT64_MAX - size ? malloc(size + !size) : NULL;
	size_t done = 0;

	if (bytes)
		huge_advise(bytes, size);
	while (bytes && done < size) {
		ssize_t got = pread(fd, bytes + done, size - done, (off_t)(offset + done));

		if (got > 0) {
			done += (size_t)got;
		} else if (!got || errno != EINTR) {
			free(bytes);
			return NULL;
		}
	}
	return bytes;
}

static int part_compare(const void *a, const void *b)
{
	const struct unwind_code *left = a, *right = b;

	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* Drops what overlaps with the part before in the file: only a hostile file has that. */
static int codes_check(struct unwind_codes *codes, uint64_t file_bytes)
{
	uint64_t end = 0, bytes = 0;
	size_t kept = 0;

	qsort(codes->parts, codes->count, sizeof(codes->parts[0]), part_compare);
	for (size_t i = 0; i < codes->count; i++) {
		const struct unwind_code *part = &codes->parts[i];

		if (part->offset < end || part->offset > file_bytes ||
		    part->size > file_bytes - part->offset || part->vaddr > UINT64_MAX - part->size)
			continue;
		end = part->offset + part->size;
		bytes += part->size;
		codes->parts[kept++] = *part;
	}
	codes->count = kept;
	return bytes > UNWIND_CODE_BYTES_MAX
		       ? error_set(-E2BIG, "more than %u MiB of code", UNWIND_CODE_BYTES_MAX >> 20)
		       : 0;
}

/* Adds the sections with code that lie within a segment. 0: there are none, or too many. */
static int sections_add(struct unwind_codes *codes, Elf *elf, const GElf_Phdr *segment)
{
	size_t before = codes->count;
	Elf_Scn *section = NULL;
	GElf_Shdr header;

	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, &header) || !(header.sh_flags & SHF_EXECINSTR) ||
		    header.sh_type == SHT_NOBITS || !header.sh_size ||
		    header.sh_addr - segment->p_vaddr >= segment->p_filesz ||
		    header.sh_size > segment->p_filesz - (header.sh_addr - segment->p_vaddr))
			continue;
		if (codes->count == UNWIND_CODE_MAX) {
			codes->count = before;
			break;
		}
		codes->parts[codes->count++] = (struct unwind_code){
			.vaddr = header.sh_addr,
			.offset = segment->p_offset + (header.sh_addr - segment->p_vaddr),
			.size = header.sh_size};
	}
	return codes->count > before;
}

int unwind_codes_read(struct unwind_codes *out, Elf *elf, int fd, uint64_t file_bytes)
{
	GElf_Phdr segment;
	GElf_Ehdr header;
	int err;

	out->is_arm64 = gelf_getehdr(elf, &header) && header.e_machine == EM_AARCH64;
	for (int i = 0; gelf_getphdr(elf, i, &segment); i++)
		if (segment.p_type == PT_LOAD && segment.p_flags & PF_X && segment.p_filesz &&
		    !sections_add(out, elf, &segment) && out->count < UNWIND_CODE_MAX)
			out->parts[out->count++] = (struct unwind_code){.vaddr = segment.p_vaddr,
									.offset = segment.p_offset,
									.size = segment.p_filesz};
	err = codes_check(out, file_bytes);
	for (size_t i = 0; i < out->count && !err; i++) {
		struct unwind_code *part = &out->parts[i];

		part->bytes = unwind_bytes_read(fd, part->offset, part->size);
		if (!part->bytes)
			err = -ENOMEM;
	}
	return err;
}

void unwind_codes_free(struct unwind_codes *codes)
{
	for (size_t i = 0; i < codes->count; i++)
		free((void *)(uintptr_t)codes->parts[i].bytes);
}

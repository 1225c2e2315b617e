/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and offsets of the file, by its segments. */
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "object/elf/elf_file_state.h"
#include "util/page.h"

const GElf_Phdr *elf_file_find_segment(const struct elf_file *file, uint32_t type)
{
	for (size_t i = 0; i < file->segment_count; i++)
		if (file->segments[i].p_type == type)
			return &file->segments[i];
	return NULL;
}

/* The segment whose file part contains vaddr. */
static const GElf_Phdr *segment_of(const struct elf_file *file, uint64_t vaddr)
{
	for (size_t i = 0; i < file->segment_count; i++) {
		const GElf_Phdr *segment = &file->segments[i];

		if (segment->p_type == PT_LOAD && vaddr >= segment->p_vaddr &&
		    vaddr - segment->p_vaddr < segment->p_filesz)
			return segment;
	}
	return NULL;
}

int elf_file_offset(struct elf_file *file, uint64_t vaddr, uint64_t *offset)
{
	const GElf_Phdr *segment = segment_of(file, vaddr);

	if (!segment)
		return -ENOENT;
	*offset = vaddr - segment->p_vaddr + segment->p_offset;
	return 0;
}

int elf_file_vaddr(struct elf_file *file, uint64_t offset, uint64_t *vaddr)
{
	for (size_t i = 0; i < file->segment_count; i++) {
		const GElf_Phdr *segment = &file->segments[i];

		if (segment->p_type == PT_LOAD && offset >= segment->p_offset &&
		    offset - segment->p_offset < segment->p_filesz) {
			*vaddr = offset - segment->p_offset + segment->p_vaddr;
			return 0;
		}
	}
	return -ENOENT;
}

int elf_file_read(struct elf_file *file, uint64_t vaddr, void *out, size_t bytes)
{
	const GElf_Phdr *segment = segment_of(file, vaddr);
	size_t done = 0;

	if (!segment)
		return 0;
	uint64_t into = vaddr - segment->p_vaddr;
	if (bytes > segment->p_filesz - into)
		bytes = segment->p_filesz - into;
	if (bytes > INT_MAX)
		bytes = INT_MAX;
	while (done < bytes) {
		ssize_t n = pread(file->fd, (char *)out + done, bytes - done,
				  (off_t)(segment->p_offset + into + done));

		if (n > 0)
			done += (size_t)n;
		else if (n == 0)
			break; /* the file was truncated after it was opened */
		else if (errno != EINTR)
			return -errno;
	}
	return (int)done;
}

int elf_file_bias(struct elf_file *file, uint64_t map_start, uint64_t map_offset, uint64_t *bias)
{
	/*
	 * The last page of one segment and the first of the next may be the same page of the file.
	 * A map that begins with this page more likely belongs to the second segment: a map of the
	 * first would begin earlier.
	 */
	const GElf_Phdr *best = NULL;
	uint64_t page, within = page_bytes() - 1;

	for (size_t i = 0; i < file->segment_count; i++) {
		const GElf_Phdr *segment = &file->segments[i];

		if (segment->p_type != PT_LOAD || !segment->p_filesz)
			continue;
		page = segment->p_offset & ~within;
		if (map_offset == page) {
			best = segment;
			break;
		}
		if (!best && map_offset > page &&
		    map_offset - segment->p_offset < segment->p_filesz)
			best = segment;
	}
	if (!best)
		return -ENOENT;
	page = best->p_offset & ~within;
	*bias = map_start - (map_offset - page) - (best->p_vaddr & ~within);
	return 0;
}

int elf_file_tls(struct elf_file *file, uint64_t *block_bytes)
{
	const GElf_Phdr *segment = elf_file_find_segment(file, PT_TLS);

	if (!segment)
		return -ENOENT;
	uint64_t align = segment->p_align ? segment->p_align : 1;
	*block_bytes = (segment->p_memsz + align - 1) & ~(align - 1);
	return 0;
}

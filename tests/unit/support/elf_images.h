/* SPDX-License-Identifier: Apache-2.0 */
/* This program's own ELF file: opened, and copied to be changed. */
#pragma once

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "proc/process.h"

#define NO_DEBUG "/nonexistent" /* a debug root without any debug file */

/*
 * Symbols of this program, which the tests find in its own file. They are volatile, since a
 * compiler may otherwise shrink or drop them.
 */
static _Thread_local volatile uint64_t landmark_tls[4];
static volatile uint64_t landmark_data[4] = {0x1122334455667788, 2, 3, 4};

static __attribute__((noinline, unused)) uint64_t landmark_function(uint64_t x)
{
	landmark_tls[1] += x;
	return landmark_tls[1] + landmark_data[x & 3];
}

static inline struct elf_file *open_elf(const char *path, const char *debug_root)
{
	struct elf_file *file = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(elf_file_open(&file, fd, path, debug_root), 0);
	assert_int_equal(elf_file_fd(file), fd);
	assert_string_equal(elf_file_path(file), path);
	return file;
}

/*
 * Load bias of the mapped file that holds address, computed from each of its maps; they must agree.
 */
static inline uint64_t own_bias(struct elf_file *file, const void *address)
{
	const struct process_map *found = NULL;
	struct process_maps maps;
	uint64_t bias = 0;

	assert_int_equal(process_maps_read(getpid(), &maps), 0);
	for (size_t i = 0; i < maps.count; i++)
		if ((uintptr_t)address >= maps.entries[i].start &&
		    (uintptr_t)address < maps.entries[i].end)
			found = &maps.entries[i];
	assert_non_null(found);
	for (size_t i = 0; i < maps.count; i++)
		if (maps.entries[i].inode == found->inode &&
		    !strcmp(maps.entries[i].path, found->path)) {
			assert_int_equal(elf_file_bias(file, maps.entries[i].start,
						       maps.entries[i].offset, &bias),
					 0);
			break;
		}
	process_maps_free(&maps);
	return bias;
}

struct image {
	int fd;               /* a copy of this program in memory */
	unsigned char *bytes; /* shared map of it */
	size_t size;
	Elf64_Ehdr *header;
};

static inline int make_image(void **state)
{
	static struct image image;
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat st;

	image.fd = memfd_create("image", MFD_CLOEXEC);
	if (self < 0 || image.fd < 0 || fstat(self, &st))
		return -1;
	image.size = (size_t)st.st_size;
	if (ftruncate(image.fd, st.st_size))
		return -1;
	image.bytes = mmap(NULL, image.size, PROT_READ | PROT_WRITE, MAP_SHARED, image.fd, 0);
	if (image.bytes == MAP_FAILED || pread(self, image.bytes, image.size, 0) != st.st_size)
		return -1;
	close(self);
	image.header = (Elf64_Ehdr *)image.bytes;
	*state = &image;
	return 0;
}

static inline int free_image(void **state)
{
	struct image *image = *state;

	munmap(image->bytes, image->size);
	return close(image->fd);
}

static inline Elf64_Shdr *image_section(struct image *image, uint32_t type)
{
	Elf64_Shdr *sections = (Elf64_Shdr *)(image->bytes + image->header->e_shoff);

	for (unsigned i = 0; i < image->header->e_shnum; i++)
		if (sections[i].sh_type == type)
			return &sections[i];
	fail_msg("no section of type %u", type);
	return NULL;
}

static inline int try_open(const struct image *image, struct elf_file **file)
{
	int fd = fcntl(image->fd, F_DUPFD_CLOEXEC, 0);
	int err;

	assert_true(fd >= 0);
	*file = NULL;
	err = elf_file_open(file, fd, "/image", NO_DEBUG);
	if (err) {
		assert_null(*file);
		assert_int_equal(close(fd), 0); /* still ours */
	}
	return err;
}

static inline void assert_refused(const struct image *image)
{
	struct elf_file *file;

	assert_int_equal(try_open(image, &file), -ENOEXEC);
}

#define with_image(test) cmocka_unit_test_setup_teardown(test, make_image, free_image)

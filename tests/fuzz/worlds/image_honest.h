/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The honest image of fuzz_image: the maps of a real Python process and copies of its files, and a
 * process of a few instructions (image_process.c) that maps the same at the same addresses.
 */
#ifndef FUZZ_IMAGE_HONEST_H
#define FUZZ_IMAGE_HONEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PARTS_MAX  96
#define FILES_MAX  16
#define FILES_FROM 10 /* their descriptors in the process */
#define POINTS_MAX 64

/* A map of the honest process. */
struct part {
	uint64_t start, bytes, offset;
	int file, protection; /* file: -1 anonymous */
	uint8_t *content;     /* of maps that may have been written to; NULL: the file's */
};

struct honest_file {
	int fd; /* of this process's copy */
	uint8_t *content;
	size_t bytes;
};

extern struct part image_parts[PARTS_MAX];
extern struct honest_file image_files[FILES_MAX];
extern uint64_t image_points[POINTS_MAX]; /* addresses of data that the tracer reads */
extern size_t image_part_count, image_file_count, image_point_count;
extern pid_t image_pid;        /* the process of a few instructions */
extern int image_maps_changed; /* its maps differ from the honest ones */

/* Takes the image of that interpreter and starts the process. Any failure aborts. */
void image_take(const char *interpreter);
/* Starts the process anew, with the honest maps. */
void image_process_start(void);
/* Aborts unless holds is true; prints what and errno. */
void image_must(int holds, const char *what);
/* Makes the process execute a system call; returns its result. */
long image_order(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
		 uint64_t f);
/* Writes memory of the process, including read-only memory. Returns 1 or 0. */
int image_memory_write(uint64_t address, const void *bytes, size_t count);
void image_part_map(const struct part *part);

#endif

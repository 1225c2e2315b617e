/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ELF file in which perf finds what Python's frames are called. Nothing in it ever runs: every
 * place is one no-op of PERF_PLACE_BYTES in .text, a function of a file is a symbol over its
 * places, and DWARF names the line of each. An address in the middle of its place stays the same
 * place for readers that take one off a return address.
 */
#ifndef TRACER_EXPORT_PERF_DATA_IMAGE_H
#define TRACER_EXPORT_PERF_DATA_IMAGE_H

#include "export/perf_data_frames.h"

#define PERF_PLACE_BYTES    4u
#define PERF_IMAGE_TEXT     0x1000u /* where .text is: address and offset in the file alike */
#define PERF_BUILD_ID_BYTES 20u

/*
 * Writes it to fd, which is empty, and says its build-id, a hash of all in it that may differ. 0;
 * -ENOMEM; -EFBIG; -EIO and others from writing (error_set tells).
 */
int perf_image_write(int fd, const struct perf_frames *frames,
		     uint8_t build_id[PERF_BUILD_ID_BYTES]);
/* Bytes of .text, at least one place. */
uint64_t perf_image_text_bytes(const struct perf_frames *frames);

#endif

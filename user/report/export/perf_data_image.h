/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ELF file in which perf finds the names of Python's frames. Nothing in it ever runs: every
 * slot is one no-op of PERF_SLOT_BYTES in .text, a function of a file is a symbol over its slots,
 * and DWARF names the line of each slot. Samples point at the middle of a slot, so that readers
 * that subtract one from a return address stay in the same slot.
 */
#pragma once

#include "report/export/perf_data_frames.h"

#define PERF_SLOT_BYTES     4u
#define PERF_IMAGE_TEXT     0x1000u /* address of .text, and its offset in the file */
#define PERF_BUILD_ID_BYTES 20u

/*
 * Writes the image to fd, an empty file, and returns its build-id, a hash of everything that may
 * differ. 0; -ENOMEM; -EFBIG; -EIO and other errors of writing (error_set).
 */
int perf_image_write(int fd, const struct perf_frames *frames,
		     uint8_t build_id[PERF_BUILD_ID_BYTES]);
/* Bytes of .text, at least one slot. */
uint64_t perf_image_text_bytes(const struct perf_frames *frames);

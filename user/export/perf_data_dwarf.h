/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps addresses to lines of files, in DWARF 4: a line table, and the compilation unit that refers
 * to it. elfutils reads DWARF but does not write it, so the few bytes are encoded here. Source: the
 * DWARF 4 standard.
 */
#ifndef TRACER_EXPORT_PERF_DATA_DWARF_H
#define TRACER_EXPORT_PERF_DATA_DWARF_H

#include "base/buffer.h"
#include "export/perf_data_frames.h"

/* Contents of .debug_line, .debug_info, .debug_abbrev, .debug_aranges. */
struct perf_dwarf {
	struct buffer line, info, abbrev, aranges;
};

/*
 * Slot i is at [text + i * slot_bytes, text + (i + 1) * slot_bytes). 0, -ENOMEM; -EFBIG: more
 * than 32-bit DWARF can hold. perf_dwarf_free() releases, also after an error.
 */
int perf_dwarf_build(struct perf_dwarf *dwarf, const struct perf_frames *frames, uint64_t text,
		     uint32_t slot_bytes);
void perf_dwarf_free(struct perf_dwarf *dwarf);

#endif

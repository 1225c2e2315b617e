/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which line of which file an address is of, in DWARF 4: a line table and the one compilation unit
 * that leads to it. elfutils reads DWARF and writes none, so the few bytes are put together here.
 * Source: the DWARF 4 standard.
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
 * The place i is at [text + i * place_bytes, text + (i + 1) * place_bytes). 0, -ENOMEM; -EFBIG:
 * more than 32-bit DWARF can hold. perf_dwarf_free() releases, after an error, too.
 */
int perf_dwarf_build(struct perf_dwarf *dwarf, const struct perf_frames *frames, uint64_t text,
		     uint32_t place_bytes);
void perf_dwarf_free(struct perf_dwarf *dwarf);

#endif

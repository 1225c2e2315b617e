/* SPDX-License-Identifier: Apache-2.0 */
#include "export/perf_data_dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"

#define LINE_BASE   (-5)
#define LINE_RANGE  14u
#define OPCODE_BASE 13u

static int u8_append(struct buffer *out, uint8_t value)
{
	return buffer_append(out, &value, sizeof(value));
}

static int u16_append(struct buffer *out, uint16_t value)
{
	return buffer_append(out, &value, sizeof(value));
}

static int u32_append(struct buffer *out, uint32_t value)
{
	return buffer_append(out, &value, sizeof(value));
}

static int u64_append(struct buffer *out, uint64_t value)
{
	return buffer_append(out, &value, sizeof(value));
}

static int uleb_append(struct buffer *out, uint64_t value)
{
	int err = 0;

	for (; !err && value >= 0x80; value >>= 7)
		err = u8_append(out, (uint8_t)(value | 0x80));
	return err ? err : u8_append(out, (uint8_t)value);
}

static int sleb_append(struct buffer *out, int64_t value)
{
	int err = 0;

	for (; !err && (value < -64 || value > 63); value >>= 7)
		err = u8_append(out, (uint8_t)((value & 0x7f) | 0x80));
	return err ? err : u8_append(out, (uint8_t)(value & 0x7f));
}

/*
 * A unit begins with its length, which is known only at its end: reserves room for it, which
 * unit_end() fills.
 */
static int unit_begin(struct buffer *out, size_t *at)
{
	*at = out->size;
	return u32_append(out, 0);
}

static int unit_end(struct buffer *out, size_t at)
{
	size_t length = out->size - at - 4;

	if (length >= 0xfffffff0) /* values from here on are reserved for 64-bit DWARF */
		return error_set(-EFBIG, "too many lines of code for a line table");
	memcpy(out->data + at, &(uint32_t){(uint32_t)length}, 4);
	return 0;
}

/*
 * The file table: the file names in their order, without directory indices (names contain their
 * directory). perf takes what follows the first colon as the line.
 */
static int files_append(struct buffer *out, const struct perf_frames *frames)
{
	/* the name's NUL, then no directory, time or length */
	static const uint8_t no_more[4] = {0};
	int err = u8_append(out, 0); /* no directories */

	for (uint32_t i = 0; !err && i < frames->count; i++) {
		uint32_t file = frames->frames[i].filename;

		if (i && file == frames->frames[i - 1].filename)
			continue;
		err = perf_name_append(out, strings_get(frames->strings, file), ':');
		if (!err)
			err = buffer_append(out, no_more, sizeof(no_more));
	}
	return err ? err : u8_append(out, 0);
}

static int line_header_append(struct buffer *out, const struct perf_frames *frames,
			      uint32_t slot_bytes)
{
	static const uint8_t operands[OPCODE_BASE - 1] = {0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1};
	size_t header = 0;
	int err = u16_append(out, 4);

	if (!err)
		err = unit_begin(out, &header);
	if (!err)
		err = u8_append(out, (uint8_t)slot_bytes); /* minimum_instruction_length */
	if (!err)
		err = u8_append(out, 1); /* maximum_operations_per_instruction */
	if (!err)
		err = u8_append(out, 1); /* default_is_stmt */
	if (!err)
		err = u8_append(out, (uint8_t)LINE_BASE);
	if (!err)
		err = u8_append(out, LINE_RANGE);
	if (!err)
		err = u8_append(out, OPCODE_BASE);
	if (!err)
		err = buffer_append(out, operands, sizeof(operands));
	if (!err)
		err = files_append(out, frames);
	return err ? err : unit_end(out, header);
}

/*
 * Appends a row: the line, at the address one slot after the previous one (advance 0: at the same
 * address).
 */
static int row_append(struct buffer *out, int64_t line_delta, unsigned int advance)
{
	int err = 0;

	if (line_delta < LINE_BASE || line_delta >= LINE_BASE + (int)LINE_RANGE) {
		err = u8_append(out, DW_LNS_advance_line);
		if (!err)
			err = sleb_append(out, line_delta);
		line_delta = 0;
	}
	return err ? err
		   : u8_append(out, (uint8_t)((unsigned int)(line_delta - LINE_BASE) +
					      LINE_RANGE * advance + OPCODE_BASE));
}

static int program_append(struct buffer *out, const struct perf_frames *frames, uint64_t text)
{
	static const uint8_t set_address[] = {0, 9, DW_LNE_set_address},
			     end[] = {0, 1, DW_LNE_end_sequence};
	uint32_t line = 1, file = 1;
	int err = buffer_append(out, set_address, sizeof(set_address));

	if (!err)
		err = u64_append(out, text);
	for (uint32_t i = 0; !err && i < frames->count; i++) {
		const struct snapshot_frame *frame = &frames->frames[i];

		if (i && frame->filename != frame[-1].filename) {
			err = u8_append(out, DW_LNS_set_file);
			if (!err)
				err = uleb_append(out, ++file);
		}
		if (!err)
			err = row_append(out, (int64_t)frame->line - line, i > 0);
		line = frame->line;
	}
	if (!err)
		err = u8_append(out, DW_LNS_advance_pc);
	if (!err)
		err = uleb_append(out, 1);
	return err ? err : buffer_append(out, end, sizeof(end));
}

static int line_build(struct buffer *out, const struct perf_frames *frames, uint64_t text,
		      uint32_t slot_bytes)
{
	size_t unit;
	int err = unit_begin(out, &unit);

	if (!err)
		err = line_header_append(out, frames, slot_bytes);
	if (!err)
		err = program_append(out, frames, text);
	return err ? err : unit_end(out, unit);
}

/* One entry without children. Without DW_AT_comp_dir, names without a directory stay unchanged. */
static const uint8_t abbreviations[] = {
	1,
	DW_TAG_compile_unit,
	DW_CHILDREN_no,
	DW_AT_producer,
	DW_FORM_string,
	DW_AT_language,
	DW_FORM_data1,
	DW_AT_name,
	DW_FORM_string,
	DW_AT_stmt_list,
	DW_FORM_sec_offset,
	DW_AT_low_pc,
	DW_FORM_addr,
	DW_AT_high_pc,
	DW_FORM_data8,
	0,
	0,
	0,
};

static int info_build(struct buffer *out, uint64_t text, uint64_t bytes)
{
	static const char producer[] = "tracer", name[] = "Python";
	size_t unit;
	int err = unit_begin(out, &unit);

	if (!err)
		err = u16_append(out, 4);
	if (!err)
		err = u32_append(out, 0); /* offset in .debug_abbrev */
	if (!err)
		err = u8_append(out, sizeof(uint64_t));
	if (!err)
		err = u8_append(out, 1);
	if (!err)
		err = buffer_append(out, producer, sizeof(producer));
	if (!err)
		err = u8_append(out, DW_LANG_Python);
	if (!err)
		err = buffer_append(out, name, sizeof(name));
	if (!err)
		err = u32_append(out, 0); /* offset in .debug_line */
	if (!err)
		err = u64_append(out, text);
	if (!err)
		err = u64_append(out, bytes);
	return err ? err : unit_end(out, unit);
}

static int aranges_build(struct buffer *out, uint64_t text, uint64_t bytes)
{
	/* no segments, then padding */
	static const uint8_t sizes[] = {sizeof(uint64_t), 0, 0, 0, 0, 0};
	const uint64_t ranges[] = {text, bytes, 0, 0};
	size_t unit;
	int err = unit_begin(out, &unit);

	if (!err)
		err = u16_append(out, 2);
	if (!err)
		err = u32_append(out, 0); /* offset in .debug_info */
	if (!err)
		err = buffer_append(out, sizes, sizeof(sizes));
	if (!err)
		err = buffer_append(out, ranges, sizeof(ranges));
	return err ? err : unit_end(out, unit);
}

int perf_dwarf_build(struct perf_dwarf *dwarf, const struct perf_frames *frames, uint64_t text,
		     uint32_t slot_bytes)
{
	uint64_t bytes = (uint64_t)frames->count * slot_bytes;
	int err = line_build(&dwarf->line, frames, text, slot_bytes);

	if (!err)
		err = info_build(&dwarf->info, text, bytes);
	if (!err)
		err = buffer_append(&dwarf->abbrev, abbreviations, sizeof(abbreviations));
	return err ? err : aranges_build(&dwarf->aranges, text, bytes);
}

void perf_dwarf_free(struct perf_dwarf *dwarf)
{
	buffer_free(&dwarf->line);
	buffer_free(&dwarf->info);
	buffer_free(&dwarf->abbrev);
	buffer_free(&dwarf->aranges);
}

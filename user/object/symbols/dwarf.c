/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two indexes: from addresses to units, built when the file is opened (libdw would use
 * .debug_aranges, which clang and Rust do not emit), and from addresses to the functions of a unit,
 * built when the unit is first needed. Within a function only the blocks that contain the address
 * are searched.
 */
#include "object/symbols/dwarf.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <stdlib.h>

#include "object/elf/elf_section.h"
#include "object/symbols/demangle.h"
#include "util/array.h"
#include "util/error.h"
#include "util/spans.h"

#define DEPTH_MAX 64 /* nesting in a unit, and in a function */

struct dwarf_unit {
	Dwarf_Off die;
	int indexed;
	struct spans functions; /* value: offset of the DIE */
};

struct dwarf_file {
	Elf *elf, *alternate_elf;
	Dwarf *dwarf, *alternate;
	struct dwarf_unit *units;
	size_t unit_count, unit_capacity;
	struct spans ranges; /* value: index in units */
};

/* Adds every address range of a DIE. */
static int die_add_ranges(Dwarf_Die *die, struct spans *spans, uint64_t value)
{
	Dwarf_Addr base, start, end;
	ptrdiff_t offset = 0;
	int err = 0;

	while (!err && (offset = dwarf_ranges(die, offset, &base, &start, &end)) > 0)
		if (start) /* code that the linker has discarded is at 0 */
			err = spans_add(spans, &(struct address_span){
						       .start = start, .end = end, .value = value});
	return err;
}

static int units_index(struct dwarf_file *file)
{
	Dwarf_CU *unit = NULL;
	Dwarf_Half version;
	Dwarf_Die die;
	uint8_t type;
	int err = 0;

	while (!err && !dwarf_get_units(file->dwarf, unit, &unit, &version, &type, &die, NULL)) {
		if (type != DW_UT_compile && type != DW_UT_skeleton)
			continue;
		err = ARRAY_GROW(file->units, file->unit_capacity, file->unit_count);
		if (err)
			break;
		file->units[file->unit_count] = (struct dwarf_unit){.die = dwarf_dieoffset(&die)};
		err = die_add_ranges(&die, &file->ranges, file->unit_count++);
	}
	return err ?: spans_sort(&file->ranges);
}

static int sections_begin(Elf *elf, Dwarf **dwarf)
{
	*dwarf = dwarf_begin_elf(elf, DWARF_C_READ, NULL);
	return *dwarf ? 0 : error_set(-ENOENT, "DWARF: %s", dwarf_errmsg(-1));
}

int dwarf_file_open(struct dwarf_file **out, int fd, int alternate_fd)
{
	struct dwarf_file *file = calloc(1, sizeof(*file));
	uint64_t bytes;

	if (!file)
		return -ENOMEM;
	int err = elf_section_begin(&file->elf, fd, &bytes)
			  ?: sections_begin(file->elf, &file->dwarf);
	if (!err && alternate_fd >= 0 &&
	    !elf_section_begin_common(&file->alternate_elf, alternate_fd) &&
	    !sections_begin(file->alternate_elf, &file->alternate))
		dwarf_setalt(file->dwarf, file->alternate);
	err = err ?: units_index(file);
	if (err) {
		dwarf_file_close(file);
		return err;
	}
	*out = file;
	return 0;
}

void dwarf_file_close(struct dwarf_file *file)
{
	if (!file)
		return;
	for (size_t i = 0; i < file->unit_count; i++)
		spans_free(&file->units[i].functions);
	free(file->units);
	spans_free(&file->ranges);
	dwarf_end(file->dwarf);
	dwarf_end(file->alternate);
	elf_end(file->elf);
	elf_end(file->alternate_elf);
	free(file);
}

/*
 * Whether the DIE may contain functions with code: also classes, for their methods, and functions,
 * for local classes.
 */
static int holds_functions(Dwarf_Die *die)
{
	switch (dwarf_tag(die)) {
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_enumeration_type: /* Rust's have methods */
	case DW_TAG_subprogram:
	case DW_TAG_lexical_block:
		return dwarf_haschildren(die);
	default:
		return 0;
	}
}

static int functions_index(struct spans *functions, Dwarf_Die *parent, int depth)
{
	Dwarf_Die die;
	int err = 0;

	if (depth == DEPTH_MAX || dwarf_child(parent, &die))
		return 0;
	do {
		if (dwarf_tag(&die) == DW_TAG_subprogram)
			err = die_add_ranges(&die, functions, dwarf_dieoffset(&die));
		if (!err && holds_functions(&die))
			err = functions_index(functions, &die, depth + 1);
	} while (!err && !dwarf_siblingof(&die, &die));
	return err;
}

/*
 * Whether the block contains the address, or, if it has no addresses, may contain a block that
 * does.
 */
static int block_holds(Dwarf_Die *die, uint64_t vaddr)
{
	int holds = dwarf_haspc(die, vaddr) == 1;

	return holds || (dwarf_tag(die) == DW_TAG_lexical_block &&
			 !dwarf_hasattr(die, DW_AT_low_pc) && !dwarf_hasattr(die, DW_AT_ranges));
}

/* Appends the functions inlined at vaddr to chain, outermost first. Returns the new count. */
static size_t inlined_find(Dwarf_Die *parent, uint64_t vaddr, Dwarf_Die chain[DWARF_INLINE_MAX],
			   size_t count, int depth)
{
	size_t before = count;
	Dwarf_Die die;

	if (depth == DEPTH_MAX || count == DWARF_INLINE_MAX || dwarf_child(parent, &die))
		return count;
	do {
		int tag = dwarf_tag(&die);
		if ((tag != DW_TAG_lexical_block && tag != DW_TAG_inlined_subroutine) ||
		    !block_holds(&die, vaddr))
			continue;
		if (tag == DW_TAG_inlined_subroutine)
			chain[count++] = die;
		count = inlined_find(&die, vaddr, chain, count, depth + 1);
	} while (count == before && !dwarf_siblingof(&die, &die));
	return count;
}

static const char *die_string(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attribute;

	return dwarf_attr_integrate(die, name, &attribute) ? dwarf_formstring(&attribute) : NULL;
}

/*
 * A linkage name that is not mangled is an alias, such as __GI___libc_malloc; the source name is
 * preferred then.
 */
static const char *function_name(Dwarf_Die *die)
{
	const char *name = die_string(die, DW_AT_linkage_name);

	if (!name)
		name = die_string(die, DW_AT_MIPS_linkage_name);
	if (!name || !demangle_wanted(name))
		name = die_string(die, DW_AT_name);
	return name && name[0] ? name : NULL;
}

/* libdw returns names in the compilation directory with and without that directory. */
static void filename_set(Dwarf_Die *unit, const char *filename, struct dwarf_frame *frame)
{
	const char *directory = NULL;

	if (filename && filename[0] != '/')
		directory = die_string(unit, DW_AT_comp_dir);
	frame->filename = filename;
	frame->directory = directory && directory[0] == '/' ? directory : NULL;
}

static void line_find(Dwarf_Die *unit, uint64_t vaddr, struct dwarf_frame *frame)
{
	Dwarf_Line *line = dwarf_getsrc_die(unit, vaddr);
	int number;

	if (!line)
		return;
	filename_set(unit, dwarf_linesrc(line, NULL, NULL), frame);
	if (!dwarf_lineno(line, &number) && number > 0)
		frame->line = (uint32_t)number;
}

/* Where an inlined function was called from. */
static void call_find(Dwarf_Die *unit, Dwarf_Die *inlined, struct dwarf_frame *frame)
{
	Dwarf_Attribute attribute;
	Dwarf_Files *files;
	Dwarf_Word number;
	size_t count;

	if (dwarf_attr(inlined, DW_AT_call_line, &attribute) &&
	    !dwarf_formudata(&attribute, &number) && number <= INT32_MAX)
		frame->line = (uint32_t)number;
	if (dwarf_attr(inlined, DW_AT_call_file, &attribute) &&
	    !dwarf_formudata(&attribute, &number) && !dwarf_getsrcfiles(unit, &files, &count) &&
	    number < count)
		filename_set(unit, dwarf_filesrc(files, number, NULL, NULL), frame);
}

/* The function of the unit that has code at the address. 1 found, 0 none, -ENOMEM. */
static int function_find(struct dwarf_file *file, struct dwarf_unit *unit, Dwarf_Die *unit_die,
			 uint64_t vaddr, Dwarf_Die *out)
{
	if (!unit->indexed) {
		unit->indexed = 1;
		int err = functions_index(&unit->functions, unit_die, 0)
				  ?: spans_sort(&unit->functions);
		if (err) {
			spans_free(&unit->functions);
			return err;
		}
	}
	const struct address_span *found = spans_find(&unit->functions, vaddr);
	return found && dwarf_offdie(file->dwarf, found->value, out);
}

int dwarf_file_frames(struct dwarf_file *file, uint64_t vaddr, struct dwarf_frame frames[],
		      size_t capacity)
{
	const struct address_span *found = spans_find(&file->ranges, vaddr);
	Dwarf_Die chain[DWARF_INLINE_MAX + 1], unit; /* the function, and what is inlined in it */
	struct dwarf_frame frame = {0};
	size_t count = 0;

	if (!found || !capacity || !dwarf_offdie(file->dwarf, file->units[found->value].die, &unit))
		return 0;
	int known = function_find(file, &file->units[found->value], &unit, vaddr, &chain[0]);
	if (known < 0)
		return known;
	line_find(&unit, vaddr, &frame);
	if (!known) {
		frames[0] = frame;
		return frame.filename ? 1 : 0;
	}
	for (size_t left = 1 + inlined_find(&chain[0], vaddr, chain + 1, 0, 0);
	     left-- && count < capacity;) {
		frame.function = function_name(&chain[left]);
		frames[count++] = frame;
		frame = (struct dwarf_frame){0};
		if (left)
			call_find(&unit, &chain[left], &frame);
	}
	return (int)count;
}

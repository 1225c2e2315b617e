/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/offsets FILE...
 *
 * Prints one initialiser of struct python_offsets per FILE, an ELF file with CPython's DWARF (an
 * unstripped libpython3.N.so or interpreter, or a -dbg file); tools/add-version puts them into the
 * table. A field is an offset, a size or a constant that a spec below names in CPython's own terms
 * for a range of versions; a spec that DWARF does not answer is an error, so that a new version is
 * looked at rather than guessed.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/target.h"

#define V(minor) (0x0300u | (minor))
#define ANY      0xffffu

enum spec_kind {
	OFFSET, /* of the member path within type */
	SIZE,   /* of type */
	/* bits between the start of the struct that holds the bit field and the bit field */
	SHIFT,
	ENUM,    /* value of the enumerator path; type is not used */
	POINTER, /* 1 when the member is a pointer, else 0 */
	WORD,    /* of the member path within type, in words of 8 bytes */
	CONST,   /* a macro of CPython's, which DWARF does not keep: value */
};

struct spec {
	const char *field;
	enum spec_kind kind;
	const char *type; /* typedef name or struct tag */
	const char *path; /* members, separated by dots */
	uint32_t first, last, value;
};

/* The specs of one field stand together; the first whose range holds the version counts. */
static const struct spec specs[] = {
	/* The interpreter's own word on these, from 3.13 on. */
	{"own[OWN_INTERPRETERS_HEAD]", WORD, "_Py_DebugOffsets", "runtime_state.interpreters_head",
	 V(13), ANY, 0},
	{"own[OWN_INTERP_NEXT]", WORD, "_Py_DebugOffsets", "interpreter_state.next", V(13), ANY, 0},
	{"own[OWN_INTERP_THREADS_HEAD]", WORD, "_Py_DebugOffsets", "interpreter_state.threads_head",
	 V(13), ANY, 0},
	{"own[OWN_TSTATE_NEXT]", WORD, "_Py_DebugOffsets", "thread_state.next", V(13), ANY, 0},
	{"own[OWN_TSTATE_FRAME]", WORD, "_Py_DebugOffsets", "thread_state.current_frame", V(13),
	 ANY, 0},
	{"own[OWN_TSTATE_THREAD_ID]", WORD, "_Py_DebugOffsets", "thread_state.thread_id", V(13),
	 ANY, 0},
	{"own[OWN_FRAME_PREVIOUS]", WORD, "_Py_DebugOffsets", "interpreter_frame.previous", V(13),
	 ANY, 0},
	{"own[OWN_FRAME_CODE]", WORD, "_Py_DebugOffsets", "interpreter_frame.executable", V(13),
	 ANY, 0},
	{"own[OWN_FRAME_INSTR]", WORD, "_Py_DebugOffsets", "interpreter_frame.instr_ptr", V(13),
	 ANY, 0},
	{"own[OWN_FRAME_OWNER]", WORD, "_Py_DebugOffsets", "interpreter_frame.owner", V(13), ANY,
	 0},
	{"own[OWN_CODE_FILENAME]", WORD, "_Py_DebugOffsets", "code_object.filename", V(13), ANY, 0},
	{"own[OWN_CODE_QUALNAME]", WORD, "_Py_DebugOffsets", "code_object.qualname", V(13), ANY, 0},
	{"own[OWN_CODE_LINES]", WORD, "_Py_DebugOffsets", "code_object.linetable", V(13), ANY, 0},
	{"own[OWN_CODE_FIRST_LINE]", WORD, "_Py_DebugOffsets", "code_object.firstlineno", V(13),
	 ANY, 0},
	{"own[OWN_CODE_BYTECODE]", WORD, "_Py_DebugOffsets", "code_object.co_code_adaptive", V(13),
	 ANY, 0},
	{"own[OWN_OBJECT_TYPE]", WORD, "_Py_DebugOffsets", "pyobject.ob_type", V(13), ANY, 0},

	{"gil_tstate", OFFSET, "_PyRuntimeState", "gilstate.tstate_current", V(8), V(11), 0},
	{"gil_tstate", CONST, NULL, NULL, V(12), ANY, 0},

	{"abi.runtime_interpreters_head", OFFSET, "_PyRuntimeState", "interpreters.head", V(8), ANY,
	 0},
	{"abi.interp_next", OFFSET, "PyInterpreterState", "next", V(8), ANY, 0},
	{"abi.interp_threads_head", OFFSET, "PyInterpreterState", "tstate_head", V(8), V(10), 0},
	{"abi.interp_threads_head", OFFSET, "PyInterpreterState", "threads.head", V(11), ANY, 0},
	{"abi.tstate_next", OFFSET, "PyThreadState", "next", V(8), ANY, 0},
	{"abi.tstate_thread_id", OFFSET, "PyThreadState", "thread_id", V(8), ANY, 0},
	{"abi.tstate_frame", OFFSET, "PyThreadState", "frame", V(8), V(10), 0},
	{"abi.tstate_frame", CONST, NULL, NULL, V(11), V(12), ABI_NONE},
	{"abi.tstate_frame", OFFSET, "PyThreadState", "current_frame", V(13), ANY, 0},
	{"abi.tstate_cframe", OFFSET, "PyThreadState", "cframe", V(11), V(12), 0},
	{"abi.tstate_cframe", CONST, NULL, NULL, V(8), ANY, ABI_NONE},
	{"abi.cframe_current_frame", OFFSET, "_PyCFrame", "current_frame", V(11), V(12), 0},
	{"abi.cframe_current_frame", CONST, NULL, NULL, V(8), ANY, ABI_NONE},
	{"abi.frame_code", OFFSET, "PyFrameObject", "f_code", V(8), V(10), 0},
	{"abi.frame_code", OFFSET, "_PyInterpreterFrame", "f_code", V(11), V(12), 0},
	{"abi.frame_code", OFFSET, "_PyInterpreterFrame", "f_executable", V(13), ANY, 0},
	{"abi.frame_previous", OFFSET, "PyFrameObject", "f_back", V(8), V(10), 0},
	{"abi.frame_previous", OFFSET, "_PyInterpreterFrame", "previous", V(11), ANY, 0},
	{"abi.frame_instr", OFFSET, "PyFrameObject", "f_lasti", V(8), V(10), 0},
	{"abi.frame_instr", OFFSET, "_PyInterpreterFrame", "prev_instr", V(11), V(12), 0},
	{"abi.frame_instr", OFFSET, "_PyInterpreterFrame", "instr_ptr", V(13), ANY, 0},
	{"abi.frame_owner", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"abi.frame_owner", OFFSET, "_PyInterpreterFrame", "owner", V(11), ANY, 0},
	{"abi.code_first_line", OFFSET, "PyCodeObject", "co_firstlineno", V(8), ANY, 0},
	{"abi.code_filename", OFFSET, "PyCodeObject", "co_filename", V(8), ANY, 0},
	{"abi.code_qualname", OFFSET, "PyCodeObject", "co_name", V(8), V(10), 0},
	{"abi.code_qualname", OFFSET, "PyCodeObject", "co_qualname", V(11), ANY, 0},
	{"abi.code_lines", OFFSET, "PyCodeObject", "co_lnotab", V(8), V(9), 0},
	{"abi.code_lines", OFFSET, "PyCodeObject", "co_linetable", V(10), ANY, 0},
	{"abi.code_mark", OFFSET, "PyCodeObject", "co_lnotab", V(8), V(9), 0},
	{"abi.code_mark", OFFSET, "PyCodeObject", "co_linetable", V(10), V(11), 0},
	{"abi.code_mark", OFFSET, "PyCodeObject", "co_version", V(12), ANY, 0},
	{"abi.code_bytecode", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"abi.code_bytecode", OFFSET, "PyCodeObject", "co_code_adaptive", V(11), ANY, 0},
	{"abi.code_first_traceable", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"abi.code_first_traceable", OFFSET, "PyCodeObject", "_co_firsttraceable", V(11), ANY, 0},
	{"abi.object_type", OFFSET, "PyObject", "ob_type", V(8), ANY, 0},
	{"abi.bytes_size", OFFSET, "PyVarObject", "ob_size", V(8), ANY, 0},
	{"abi.bytes_data", OFFSET, "PyBytesObject", "ob_sval", V(8), ANY, 0},
	{"abi.unicode_length", OFFSET, "PyASCIIObject", "length", V(8), ANY, 0},
	{"abi.unicode_state", OFFSET, "PyASCIIObject", "state", V(8), ANY, 0},
	{"abi.unicode_ascii", SIZE, "PyASCIIObject", NULL, V(8), ANY, 0},
	{"abi.unicode_compact", SIZE, "PyCompactUnicodeObject", NULL, V(8), ANY, 0},
	{"abi.unicode_kind_shift", SHIFT, "PyASCIIObject", "state.kind", V(8), ANY, 0},
	/* f_lasti counts bytes up to 3.9 and code units of two bytes in 3.10. */
	{"abi.frame_lasti_scale", CONST, NULL, NULL, V(8), V(9), 1},
	{"abi.frame_lasti_scale", CONST, NULL, NULL, V(10), V(10), 2},
	{"abi.frame_lasti_scale", CONST, NULL, NULL, V(11), ANY, 0},
	{"abi.owner_generator", CONST, NULL, NULL, V(8), V(10), 0},
	{"abi.owner_generator", ENUM, NULL, "FRAME_OWNED_BY_GENERATOR", V(11), ANY, 0},
	{"abi.owner_skip", CONST, NULL, NULL, V(8), V(11), 255},
	{"abi.owner_skip", ENUM, NULL, "FRAME_OWNED_BY_CSTACK", V(12), V(13), 0},
	/* The interpreter's own entry frame; the C stack's follow it. */
	{"abi.owner_skip", ENUM, NULL, "FRAME_OWNED_BY_INTERPRETER", V(14), ANY, 0},
	/* From 3.13 on f_executable is any object; 3.14 makes it a tagged reference. */
	{"abi.frame_code_tagged", CONST, NULL, NULL, V(8), V(13), 0},
	{"abi.frame_code_tagged", CONST, NULL, NULL, V(14), ANY, 1},
	{"abi.frame_code_checked", CONST, NULL, NULL, V(8), V(12), 0},
	{"abi.frame_code_checked", CONST, NULL, NULL, V(13), ANY, 1},
	{"abi.code_versioned", CONST, NULL, NULL, V(8), V(11), 0},
	{"abi.code_versioned", CONST, NULL, NULL, V(12), ANY, 1},

	{"heap.interp_obmalloc", OFFSET, "PyInterpreterState", "obmalloc", V(12), ANY, 0},
	{"heap.interp_obmalloc", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.obmalloc_is_pointer", POINTER, "PyInterpreterState", "obmalloc", V(12), ANY, 0},
	{"heap.obmalloc_is_pointer", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.mgmt_arenas", OFFSET, "_obmalloc_state", "mgmt.arenas", V(12), ANY, 0},
	{"heap.mgmt_arenas", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.mgmt_maxarenas", OFFSET, "_obmalloc_state", "mgmt.maxarenas", V(12), ANY, 0},
	{"heap.mgmt_maxarenas", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.mgmt_raw_blocks", OFFSET, "_obmalloc_state", "mgmt.raw_allocated_blocks", V(12), ANY,
	 0},
	{"heap.mgmt_raw_blocks", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.arena_object_size", SIZE, "arena_object", NULL, V(8), ANY, 0},
	{"heap.arena_address", OFFSET, "arena_object", "address", V(8), ANY, 0},
	{"heap.arena_pool_address", OFFSET, "arena_object", "pool_address", V(8), ANY, 0},
	{"heap.arena_nfreepools", OFFSET, "arena_object", "nfreepools", V(8), ANY, 0},
	{"heap.pool_count", OFFSET, "pool_header", "ref.count", V(8), ANY, 0},
	{"heap.pool_freeblock", OFFSET, "pool_header", "freeblock", V(8), ANY, 0},
	{"heap.pool_szidx", OFFSET, "pool_header", "szidx", V(8), ANY, 0},
	{"heap.pool_nextoffset", OFFSET, "pool_header", "nextoffset", V(8), ANY, 0},
	{"heap.pool_maxnextoffset", OFFSET, "pool_header", "maxnextoffset", V(8), ANY, 0},
	/* POOL_OVERHEAD: sizeof(struct pool_header), which is 48, is a multiple of ALIGNMENT. */
	{"heap.pool_header_size", SIZE, "pool_header", NULL, V(8), ANY, 0},
	/*
	 * ARENA_SIZE, POOL_SIZE, ALIGNMENT of obmalloc.c; arenas and pools grew with the radix tree
	 * of 3.10.
	 */
	{"heap.arena_bytes", CONST, NULL, NULL, V(8), V(9), 256 << 10},
	{"heap.arena_bytes", CONST, NULL, NULL, V(10), ANY, 1 << 20},
	{"heap.pool_bytes", CONST, NULL, NULL, V(8), V(9), 4 << 10},
	{"heap.pool_bytes", CONST, NULL, NULL, V(10), ANY, 16 << 10},
	{"heap.alignment", CONST, NULL, NULL, V(8), ANY, 16},
	{"heap.type_name", OFFSET, "PyTypeObject", "tp_name", V(8), ANY, 0},
	{"heap.type_flags", OFFSET, "PyTypeObject", "tp_flags", V(8), ANY, 0},
	{"heap.gc_head_bytes", SIZE, "PyGC_Head", NULL, V(8), ANY, 0},
	/*
	 * 3.14 split the reference count: its upper 16 bits are ob_flags, of which the lower 8 are
	 * in use.
	 */
	{"heap.count_flags", CONST, NULL, NULL, V(8), V(13), 0},
	{"heap.count_flags", CONST, NULL, NULL, V(14), ANY, 255},
};

/* A type by typedef name or tag: the complete struct it stands for. */
static int find_type(Dwarf *dwarf, const char *name, Dwarf_Die *out)
{
	Dwarf_Die cu_die, child;
	Dwarf_CU *cu = NULL;

	while (dwarf_get_units(dwarf, cu, &cu, NULL, NULL, &cu_die, NULL) == 0) {
		if (dwarf_child(&cu_die, &child))
			continue;
		do {
			int tag = dwarf_tag(&child);
			const char *child_name;
			Dwarf_Attribute attr;

			if (tag != DW_TAG_typedef && tag != DW_TAG_structure_type)
				continue;
			child_name = dwarf_diename(&child);
			if (!child_name || strcmp(child_name, name))
				continue;
			*out = child;
			while (dwarf_tag(out) == DW_TAG_typedef)
				if (!dwarf_attr_integrate(out, DW_AT_type, &attr) ||
				    !dwarf_formref_die(&attr, out))
					break;
			if (dwarf_tag(out) == DW_TAG_structure_type &&
			    !dwarf_hasattr(out, DW_AT_declaration))
				return 0;
		} while (dwarf_siblingof(&child, &child) == 0);
	}
	return -ENOENT;
}

static int find_enumerator(Dwarf *dwarf, const char *name, uint64_t *out)
{
	Dwarf_Die cu_die, child, entry;
	Dwarf_CU *cu = NULL;

	while (dwarf_get_units(dwarf, cu, &cu, NULL, NULL, &cu_die, NULL) == 0) {
		if (dwarf_child(&cu_die, &child))
			continue;
		do {
			if (dwarf_tag(&child) != DW_TAG_enumeration_type ||
			    dwarf_child(&child, &entry))
				continue;
			do {
				const char *entry_name = dwarf_diename(&entry);
				Dwarf_Attribute attr;
				Dwarf_Word value;

				if (!entry_name || strcmp(entry_name, name))
					continue;
				if (!dwarf_attr(&entry, DW_AT_const_value, &attr) ||
				    dwarf_formudata(&attr, &value))
					return -EINVAL;
				*out = value;
				return 0;
			} while (dwarf_siblingof(&entry, &entry) == 0);
		} while (dwarf_siblingof(&child, &child) == 0);
	}
	return -ENOENT;
}

/* The type behind a member, qualifiers and typedefs taken off. */
static int member_type(Dwarf_Die *member, Dwarf_Die *out)
{
	Dwarf_Attribute attr;
	Dwarf_Die type;

	if (!dwarf_attr_integrate(member, DW_AT_type, &attr) || !dwarf_formref_die(&attr, &type))
		return -ENOENT;
	return dwarf_peel_type(&type, out) ? -ENOENT : 0;
}

static uint64_t attribute(Dwarf_Die *die, unsigned int name)
{
	Dwarf_Attribute attr;
	Dwarf_Word value;

	return dwarf_attr(die, name, &attr) && dwarf_formudata(&attr, &value) == 0 ? value : 0;
}

/* Adds to *bits the position of a member, looked for in unnamed structs and unions too. */
static int find_member(Dwarf_Die *parent, const char *name, size_t length, Dwarf_Die *out,
		       uint64_t *bits)
{
	Dwarf_Die member, type;

	if (dwarf_child(parent, &member))
		return -ENOENT;
	do {
		const char *member_name = dwarf_diename(&member);
		uint64_t here;

		if (dwarf_tag(&member) != DW_TAG_member)
			continue;
		here = 8 * attribute(&member, DW_AT_data_member_location);
		if (dwarf_hasattr(&member, DW_AT_data_bit_offset))
			here = attribute(&member, DW_AT_data_bit_offset);
		/* DWARF 3: counted from the highest bit */
		else if (dwarf_hasattr(&member, DW_AT_bit_offset))
			here += 8 * attribute(&member, DW_AT_byte_size) -
				attribute(&member, DW_AT_bit_offset) -
				attribute(&member, DW_AT_bit_size);
		if (member_name && strlen(member_name) == length &&
		    !memcmp(member_name, name, length)) {
			*bits += here;
			*out = member;
			return 0;
		}
		if (!member_name && member_type(&member, &type) == 0 &&
		    find_member(&type, name, length, out, bits) == 0) {
			*bits += here;
			return 0;
		}
	} while (dwarf_siblingof(&member, &member) == 0);
	return -ENOENT;
}

/*
 * Follows path from type: *bits is the last member's position in type, *inner within the struct
 * next to it.
 */
static int find_path(Dwarf_Die *type, const char *path, Dwarf_Die *member, uint64_t *bits,
		     uint64_t *inner)
{
	Dwarf_Die parent = *type;

	*bits = 0;
	for (;;) {
		size_t length = strcspn(path, ".");
		uint64_t before = *bits;
		int err = find_member(&parent, path, length, member, bits);

		if (err)
			return err;
		*inner = *bits - before;
		if (!path[length])
			return 0;
		path += length + 1;
		err = member_type(member, &parent);
		if (err)
			return err;
	}
}

static int spec_value(Dwarf *dwarf, const struct spec *spec, uint64_t *out)
{
	Dwarf_Die type, member, pointed;
	uint64_t bits, inner;
	Dwarf_Word bytes;
	int err;

	if (spec->kind == CONST) {
		*out = spec->value;
		return 0;
	}
	if (spec->kind == ENUM)
		return find_enumerator(dwarf, spec->path, out);
	err = find_type(dwarf, spec->type, &type);
	if (err)
		return err;
	if (spec->kind == SIZE) {
		*out = dwarf_aggregate_size(&type, &bytes) ? 0 : bytes;
		return *out ? 0 : -ENOENT;
	}
	err = find_path(&type, spec->path, &member, &bits, &inner);
	if (err)
		return err;
	if (spec->kind == POINTER) {
		err = member_type(&member, &pointed);
		*out = !err && dwarf_tag(&pointed) == DW_TAG_pointer_type;
		return err;
	}
	*out = spec->kind == SHIFT ? inner : spec->kind == WORD ? bits / 64 : bits / 8;
	return 0;
}

/* "…ython3.11…" or "…ython-3.11…" in a name: 0x030b. */
static uint32_t version_of_name(const char *name)
{
	unsigned int minor;

	for (; name && (name = strstr(name, "ython")); name++)
		if ((sscanf(name, "ython3.%u", &minor) == 1 ||
		     sscanf(name, "ython-3.%u", &minor) == 1) &&
		    minor < 256)
			return V(minor);
	return 0;
}

/*
 * The file's name says the version; that of a debug file may not, but the directory it was compiled
 * in does.
 */
static uint32_t find_version(Dwarf *dwarf, const char *path)
{
	const char *slash = strrchr(path, '/');
	uint32_t version = version_of_name(slash ? slash + 1 : path);
	Dwarf_CU *cu = NULL;
	Dwarf_Die die;

	while (!version && dwarf_get_units(dwarf, cu, &cu, NULL, NULL, &die, NULL) == 0) {
		Dwarf_Attribute attr;

		if (dwarf_attr(&die, DW_AT_comp_dir, &attr))
			version = version_of_name(dwarf_formstring(&attr));
	}
	return version ? version : version_of_name(path);
}

static int print_fields(Dwarf *dwarf, uint32_t version, const char *path)
{
	const char *last = "";

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		const struct spec *spec = &specs[i];
		uint64_t value;

		if (version < spec->first || version > spec->last || !strcmp(spec->field, last))
			continue;
		last = spec->field;
		if (spec_value(dwarf, spec, &value)) {
			fprintf(stderr, "offsets: %s: no %s %s in its DWARF, needed for %s\n", path,
				spec->type ? spec->type : "", spec->path ? spec->path : "",
				spec->field);
			return -ENOENT;
		}
		if (!strncmp(spec->field, "abi.", 4) && value >= ABI_NONE && spec->kind != CONST) {
			fprintf(stderr, "offsets: %s: %s does not fit in 16 bits\n", path,
				spec->field);
			return -ERANGE;
		}
		if (value == ABI_NONE && !strncmp(spec->field, "abi.", 4))
			printf("\t\t.%s = ABI_NONE,\n", spec->field);
		else
			printf("\t\t.%s = %llu,\n", spec->field, (unsigned long long)value);
	}
	return 0;
}

/* Was it compiled with Py_DEBUG? Only then is there this function. */
static int is_py_debug(Dwarf *dwarf)
{
	Elf *elf = dwarf_getelf(dwarf);
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(elf, section))) {
		Elf_Data *data;
		GElf_Shdr header;

		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_SYMTAB ||
		    !header.sh_entsize)
			continue;
		data = elf_getdata(section, NULL);
		for (size_t i = 0; data && i < header.sh_size / header.sh_entsize; i++) {
			GElf_Sym symbol;
			const char *name = gelf_getsym(data, (int)i, &symbol)
						   ? elf_strptr(elf, header.sh_link, symbol.st_name)
						   : NULL;

			if (name && !strcmp(name, "_Py_NegativeRefcount"))
				return 1;
		}
	}
	return 0;
}

static int print_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = -ENOEXEC;
	const char *lines;
	uint32_t version;
	Dwarf *dwarf;

	if (fd < 0) {
		fprintf(stderr, "offsets: %s: %s\n", path, strerror(errno));
		return -errno;
	}
	dwarf = dwarf_begin(fd, DWARF_C_READ);
	if (!dwarf) {
		fprintf(stderr, "offsets: %s: %s\n", path, dwarf_errmsg(-1));
		goto out;
	}
	version = find_version(dwarf, path);
	if (version < V(8)) {
		fprintf(stderr,
			"offsets: %s: neither its name nor its DWARF tells a version from 3.8 on\n",
			path);
		goto out;
	}
	lines = version < V(10)    ? "LINES_LNOTAB"
		: version == V(10) ? "LINES_PAIRS"
				   : "LINES_LOCATIONS";
	printf("\t{\n\t\t.version = 0x%04x, /* 3.%u */\n\t\t.py_debug = %d,\n\t\t.lines = %s,\n",
	       version, version & 0xff, is_py_debug(dwarf), lines);
	err = print_fields(dwarf, version, path);
	printf("\t},\n");
out:
	dwarf_end(dwarf);
	close(fd);
	return err;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: offsets FILE...\n");
		return 2;
	}
	for (int i = 1; i < argc; i++)
		if (print_file(argv[i]))
			return 1;
	return 0;
}

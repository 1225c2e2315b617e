/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/offsets FILE...
 *
 * Prints one initialiser of struct python_offsets per FILE, an ELF file with CPython's DWARF (an
 * unstripped libpython3.N.so or interpreter, or a -dbg file); tools/add-version puts them into the
 * table. A field is an offset, a size or a constant that a spec (offsets_specs.h) names in
 * CPython's own terms for a range of versions. A spec that DWARF does not answer is an error, so
 * that the layout of a new version is inspected rather than guessed.
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

#include "offsets_specs.h"

/* Finds a type by typedef name or tag: the complete struct that the name denotes. */
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

/* The kind of a spec in a build without the GIL. */
static enum spec_kind plain_kind(enum spec_kind kind)
{
	switch (kind) {
	case NOGIL_OFFSET:
		return OFFSET;
	case NOGIL_OPTIONAL:
		return OPTIONAL;
	case NOGIL_SIZE:
		return SIZE;
	case NOGIL_CONST:
		return CONST;
	default:
		return kind;
	}
}

/* The type of a member, without qualifiers and typedefs. */
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

/* Adds the position of a member to *bits; also searches unnamed structs and unions. */
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
 * Follows path from type: *bits is the last member's position in type, *inner its position within
 * the innermost struct.
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

/* Was it compiled with Py_GIL_DISABLED? Its objects then know the thread that owns them. */
static int is_free_threaded(Dwarf *dwarf)
{
	Dwarf_Die type, member;
	uint64_t bits, inner;

	return !find_type(dwarf, "PyObject", &type) &&
	       !find_path(&type, "ob_tid", &member, &bits, &inner);
}

static int spec_value(Dwarf *dwarf, const struct spec *spec, uint64_t *out)
{
	Dwarf_Die type, member, pointed;
	enum spec_kind kind = plain_kind(spec->kind);
	uint64_t bits, inner;
	Dwarf_Word bytes;
	int err;

	if (kind == CONST || kind == CONST_WITH_GIL) {
		*out = kind == CONST_WITH_GIL && is_free_threaded(dwarf) ? 0 : spec->value;
		return 0;
	}
	if (kind == ENUM)
		return find_enumerator(dwarf, spec->path, out);
	if (kind == SIZE_WITH_GIL && is_free_threaded(dwarf)) {
		*out = 0;
		return 0;
	}
	err = find_type(dwarf, spec->type, &type);
	if (err)
		return err;
	if (kind == SIZE || kind == SIZE_WITH_GIL) {
		*out = dwarf_aggregate_size(&type, &bytes) ? 0 : bytes;
		return *out ? 0 : -ENOENT;
	}
	err = find_path(&type, spec->path, &member, &bits, &inner);
	if (err == -ENOENT && kind == OPTIONAL) {
		*out = ABI_NONE;
		return 0;
	}
	if (err)
		return err;
	if (kind == POINTER) {
		err = member_type(&member, &pointed);
		*out = !err && dwarf_tag(&pointed) == DW_TAG_pointer_type;
		return err;
	}
	*out = kind == SHIFT ? inner : kind == WORD ? bits / 64 : bits / 8;
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
 * The file's name gives the version; a debug file's name may not, but its compilation directory
 * does.
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
	int nogil = is_free_threaded(dwarf);
	const char *last = "";

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		const struct spec *spec = &specs[i];
		uint64_t value;

		if (version < spec->first || version > spec->last || !strcmp(spec->field, last))
			continue;
		if (plain_kind(spec->kind) != spec->kind && !nogil)
			continue;
		last = spec->field;
		if (spec_value(dwarf, spec, &value)) {
			fprintf(stderr, "offsets: %s: no %s %s in its DWARF, needed for %s\n", path,
				spec->type ? spec->type : "", spec->path ? spec->path : "",
				spec->field);
			return -ENOENT;
		}
		if (!strncmp(spec->field, "abi.", 4) && value >= ABI_NONE && spec->kind != CONST &&
		    spec->kind != OPTIONAL) {
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

/* Was it compiled with Py_DEBUG? This function exists only then. */
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

static const char *build_name(Dwarf *dwarf)
{
	return is_free_threaded(dwarf) ? "BUILD_FREE_THREADED"
	       : is_py_debug(dwarf)    ? "BUILD_DEBUG"
				       : "BUILD_RELEASE";
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
	printf("\t{\n\t\t.version = 0x%04x, /* 3.%u */\n\t\t.build = %s,\n\t\t.lines = %s,\n",
	       version, version & 0xff, build_name(dwarf), lines);
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

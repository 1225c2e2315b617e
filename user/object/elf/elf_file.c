/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header, segments and build id are needed for nearly every file and are read at open. Symbol
 * tables are loaded when a look-up reaches them. The debug file is searched only when the file's
 * own tables lack a name.
 */
#include "object/elf/elf_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object/elf/elf_file_state.h"
#include "object/elf/elf_section.h"
#include "util/error.h"

#define PAGE_BYTES  4096ull
#define SONAME_MAX  4096u
#define DYNAMIC_MAX 65536u /* entries: one per needed library, and about forty more */

static int read_segments(struct elf_file *file)
{
	size_t count;

	if (!gelf_getehdr(file->elf, &file->header) || elf_getphdrnum(file->elf, &count))
		return error_set(-ENOEXEC, "corrupt ELF file: %s", elf_errmsg(-1));
	file->segments = calloc(count + 1, sizeof(*file->segments));
	if (!file->segments)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr *segment = &file->segments[i];

		if (!gelf_getphdr(file->elf, (int)i, segment))
			return error_set(-ENOEXEC, "corrupt ELF file: %s", elf_errmsg(-1));
		file->segment_count++;
		if (segment->p_type != PT_LOAD && segment->p_type != PT_TLS)
			continue;
		if (segment->p_filesz > segment->p_memsz || segment->p_memsz > UINT64_MAX / 2 ||
		    segment->p_vaddr > UINT64_MAX / 2 || segment->p_align > UINT64_MAX / 4 ||
		    (segment->p_align & (segment->p_align - 1)))
			return error_set(-ENOEXEC,
					 "corrupt ELF file: segment %zu has impossible bounds", i);
		if (!segment->p_filesz)
			continue;
		if (segment->p_offset > file->bytes ||
		    segment->p_filesz > file->bytes - segment->p_offset)
			return error_set(-ENOEXEC,
					 "corrupt ELF file: segment %zu ends beyond the file", i);
		if (segment->p_type == PT_LOAD &&
		    (segment->p_vaddr ^ segment->p_offset) % PAGE_BYTES)
			return error_set(-ENOEXEC, "corrupt ELF file: segment %zu is not aligned",
					 i);
	}
	return 0;
}

/* Reads from .dynamic the soname and the flag that distinguishes an executable from a library. */
static int read_dynamic(struct elf_file *file)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_type(file->elf, SHT_DYNAMIC, NULL, &header);
	GElf_Dyn entry;
	const char *strings;
	size_t bytes;
	int pie = 0;
	int err;

	if (section && header.sh_size > DYNAMIC_MAX * sizeof(Elf64_Dyn))
		return error_set(-ENOEXEC, "corrupt ELF file: more than %u entries in .dynamic",
				 DYNAMIC_MAX);
	Elf_Data *data = section ? elf_section_data(section, &header) : NULL;
	if (section && !data)
		return -ENOEXEC;
	for (int i = 0; data && gelf_getdyn(data, i, &entry) && entry.d_tag != DT_NULL; i++) {
		if (entry.d_tag == DT_FLAGS_1 && entry.d_un.d_val & DF_1_PIE)
			pie = 1;
		if (entry.d_tag != DT_SONAME)
			continue;
		err = elf_section_strings(file->elf, header.sh_link, &strings, &bytes);
		if (err)
			return err;
		if (entry.d_un.d_val < bytes && !file->soname) {
			file->soname = strndup(strings + entry.d_un.d_val, SONAME_MAX);
			if (!file->soname)
				return -ENOMEM;
		}
	}
	/* An old linker sets no flag. libc.so.6 has an interpreter too, but also a soname. */
	file->executable = file->header.e_type == ET_EXEC || pie ||
			   (elf_file_find_segment(file, PT_INTERP) && !elf_file_soname(file)[0]);
	return 0;
}

int elf_file_open(struct elf_file **out, int fd, const char *path, const char *debug_root)
{
	struct elf_file *file = calloc(1, sizeof(*file));
	int err;

	if (!file)
		return -ENOMEM;
	file->fd = -1;
	file->debug_err = 1;
	file->debugdata_err = -ENOENT;
	file->dwarf_err = 1;
	file->imports_err = 1;
	file->dwarf_fd = -1;
	file->alternate_fd = -1;
	file->symbols_max = ELF_SYMBOLS_HERE;
	for (int i = 0; i < ELF_SOURCES; i++)
		file->table_errs[i] = 1;
	file->path = strdup(path);
	file->debug_root = debug_root ? strdup(debug_root) : NULL;
	if (!file->path || (debug_root && !file->debug_root))
		err = -ENOMEM;
	else
		err = elf_section_begin(&file->elf, fd, &file->bytes);
	if (!err)
		err = read_segments(file);
	if (!err)
		err = read_dynamic(file);
	if (err) {
		elf_file_close(file);
		return err;
	}
	elf_section_build_id(file->elf, file->build_id);
	file->fd = fd;
	/* Reading the soname has loaded the names of all exported symbols. */
	elf_file_forget(file);
	*out = file;
	return 0;
}

/*
 * Reopens the handle, since libelf keeps everything it has read until elf_end(). If the file is no
 * longer an ELF file the handle is kept.
 */
static void handle_renew(Elf **elf, int fd)
{
	uint64_t bytes;
	Elf *fresh;

	if (elf_section_begin(&fresh, fd, &bytes))
		return;
	elf_end(*elf);
	*elf = fresh;
}

void elf_file_forget(struct elf_file *file)
{
	for (int i = 0; i < ELF_SOURCES; i++) {
		elf_symbols_free(&file->tables[i]);
		file->table_errs[i] = file->table_errs[i] ? file->table_errs[i] : 1;
	}
	elf_imports_free(&file->imports);
	file->imports_err = file->imports_err ? file->imports_err : 1;
	handle_renew(&file->elf, file->fd);
	if (!file->debug_err)
		handle_renew(&file->debug.elf, file->debug.fd);
	if (!file->debugdata_err)
		handle_renew(&file->debugdata.elf, file->debugdata.fd);
}

struct elf_file *elf_file_share(struct elf_file *file)
{
	file->owners++;
	return file;
}

void elf_file_close(struct elf_file *file)
{
	if (!file || file->owners--)
		return;
	for (int i = 0; i < ELF_SOURCES; i++)
		elf_symbols_free(&file->tables[i]);
	elf_imports_free(&file->imports);
	elf_file_close_debug(file);
	elf_end(file->elf);
	if (file->fd >= 0)
		close(file->fd);
	free(file->segments);
	free(file->debug_root);
	free(file->soname);
	free(file->path);
	free(file);
}

size_t elf_file_symbol_memory(const struct elf_file *file)
{
	size_t bytes = 0;
	struct stat st;

	if (!file->debugdata_err && !fstat(file->debugdata.fd, &st))
		bytes = (size_t)st.st_size;
	for (int i = 0; i < ELF_SOURCES; i++) {
		const struct elf_symbols *table = &file->tables[i];

		if (table->symbols)
			bytes += table->symbols->d_size + table->string_bytes;
		bytes += table->name_count * sizeof(*table->by_name) +
			 table->by_address.capacity * sizeof(*table->by_address.entries);
	}
	return bytes;
}

int elf_file_fd(const struct elf_file *file)
{
	return file->fd;
}

const char *elf_file_path(const struct elf_file *file)
{
	return file->path;
}

const char *elf_file_build_id(const struct elf_file *file)
{
	return file->build_id;
}

int elf_file_load_table(struct elf_file *file, int source)
{
	int *err = &file->table_errs[source];
	uint32_t left = file->symbols_max;

	if (*err <= 0)
		return *err;
	for (int i = 0; i < ELF_SOURCES; i++)
		left -= file->tables[i].count;
	if (source == ELF_FROM_DEBUGDATA) {
		*err = elf_file_load_debugdata(file);
		if (!*err)
			*err = elf_symbols_load(&file->tables[source], file->debugdata.elf,
						SHT_SYMTAB, left);
		return *err;
	}
	if (source != ELF_FROM_DEBUG_FILE) {
		*err = elf_symbols_load(&file->tables[source], file->elf,
					source == ELF_FROM_DYNSYM ? SHT_DYNSYM : SHT_SYMTAB, left);
		return *err;
	}
	*err = elf_file_load_debug(file);
	if (!*err && elf_symbols_load(&file->tables[source], file->debug.elf, SHT_SYMTAB, left))
		/* a corrupt debug file on this machine is no defect of the target */
		*err = -ENOENT;
	return *err;
}

int elf_file_has_symtab(const struct elf_file *file)
{
	/* Loading only fills a cache: the answer never changes. */
	struct elf_file *cache = (struct elf_file *)file;

	return !elf_file_load_table(cache, ELF_FROM_SYMTAB) ||
	       !elf_file_load_table(cache, ELF_FROM_DEBUG_FILE);
}

static void fill_symbol(struct elf_symbol *out, const GElf_Sym *symbol, const char *name,
			int source)
{
	unsigned type = GELF_ST_TYPE(symbol->st_info);

	*out = (struct elf_symbol){
		.name = name,
		.vaddr = symbol->st_value,
		.size = symbol->st_size,
		.source = source,
		.function = type == STT_FUNC || type == STT_GNU_IFUNC,
		.tls = type == STT_TLS,
		.ifunc = type == STT_GNU_IFUNC,
	};
}

/* Searches by name, or by vaddr when name is NULL; the first source that has it wins. */
static int find_symbol(struct elf_file *file, const char *name, uint64_t vaddr,
		       struct elf_symbol *out)
{
	int result = -ENOENT;

	for (int source = 0; source < ELF_SOURCES; source++) {
		struct elf_symbols *table = &file->tables[source];
		GElf_Sym symbol;
		const char *found;
		int err = elf_file_load_table(file, source);

		if (!err)
			err = name ? elf_symbols_find(table, name, &symbol, &found)
				   : elf_symbols_find_at(table, vaddr, &symbol, &found);
		if (!err) {
			fill_symbol(out, &symbol, found, source);
			return 0;
		}
		if (err != -ENOENT)
			result = err;
	}
	return result;
}

int elf_file_symbol(struct elf_file *file, const char *name, struct elf_symbol *out)
{
	return find_symbol(file, name, 0, out);
}

int elf_file_symbol_at(struct elf_file *file, uint64_t vaddr, struct elf_symbol *out)
{
	return find_symbol(file, NULL, vaddr, out);
}

int elf_file_section(struct elf_file *file, const char *name, uint64_t *vaddr, uint64_t *size)
{
	GElf_Shdr header;

	if (!elf_section_by_name(file->elf, name, &header))
		return -ENOENT;
	*vaddr = header.sh_addr;
	*size = header.sh_size;
	return 0;
}

int elf_file_loaded_section(struct elf_file *file, size_t index, struct elf_section *out)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	const char *name;
	size_t names;

	if (elf_getshdrstrndx(file->elf, &names) || names == SHN_UNDEF)
		return -ENOENT;
	while ((section = elf_nextscn(file->elf, section))) {
		if (!gelf_getshdr(section, &header) || !(header.sh_flags & SHF_ALLOC) || index--)
			continue;
		name = elf_strptr(file->elf, names, header.sh_name);
		*out = (struct elf_section){.name = name ? name : "",
					    .vaddr = header.sh_addr,
					    .size = header.sh_size,
					    .code = !!(header.sh_flags & SHF_EXECINSTR),
					    .contents = header.sh_type != SHT_NOBITS};
		return 0;
	}
	return -ENOENT;
}

int elf_file_is_executable(const struct elf_file *file)
{
	return file->executable;
}

const char *elf_file_soname(struct elf_file *file)
{
	return file->soname ? file->soname : "";
}

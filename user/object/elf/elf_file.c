/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header, segments and build id are needed for nearly every file and are read at open. Symbol
 * tables are loaded when a look-up reaches them. The debug file is searched only when the file's
 * own tables lack a name.
 */
#include "object/elf/elf_file.h"

#include <errno.h>
#include <limits.h>
#include <lzma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object/elf/elf_debug.h"
#include "object/elf/elf_imports.h"
#include "object/elf/elf_section.h"
#include "object/elf/elf_symbols.h"
#include "object/elf/elf_usdt.h"
#include "util/arch.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/page.h"

/* Private to the elf_file*.c files. */
#define ELF_SOURCES 4 /* symbol sources, numbered as elf_symbol.source */
#define PAGE_BYTES  4096ull

struct elf_file {
	unsigned int owners; /* in addition to the first */
	int fd;
	char *path;
	char *debug_root; /* NULL: the default directories of this machine */
	Elf *elf;
	uint64_t bytes;
	GElf_Ehdr header;
	GElf_Phdr *segments;
	size_t segment_count;
	char build_id[ELF_BUILD_ID_HEX_MAX], *soname;
	int executable;

	uint32_t symbols_max; /* limit for all tables together */
	struct elf_symbols tables[ELF_SOURCES];
	int table_errs[ELF_SOURCES]; /* 1: not tried yet; 0: loaded; negative: the error */
	struct elf_imports imports;
	int imports_err; /* 1: not loaded yet; 0; -ENOEXEC, -ENOMEM */
	struct elf_debug debug;
	int debug_err; /* 1: not searched yet; 0: open; -ENOENT */

	struct elf_debug debugdata; /* unpacked .gnu_debugdata */
	int debugdata_err;          /* 1: not unpacked yet; 0: open; -ENOENT, -ENOEXEC, … */

	struct elf_debug alternate; /* common part (dwz) for the file with the DWARF */
	int dwarf_err;              /* 1: not searched yet; 0: found; -ENOENT */
	int dwarf_fd, alternate_fd; /* borrowed from fd, debug and alternate; -1: none */
};

/* Addresses and offsets of the file, by its segments. */

/* The first segment of that type (PT_*); NULL: none. */
static const GElf_Phdr *elf_file_find_segment(const struct elf_file *file, uint32_t type)
{
	for (size_t i = 0; i < file->segment_count; i++)
		if (file->segments[i].p_type == type)
			return &file->segments[i];
	return NULL;
}

/* The segment whose file part contains vaddr. */
static const GElf_Phdr *segment_of(const struct elf_file *file, uint64_t vaddr)
{
	for (size_t i = 0; i < file->segment_count; i++) {
		const GElf_Phdr *segment = &file->segments[i];

		if (segment->p_type == PT_LOAD && vaddr >= segment->p_vaddr &&
		    vaddr - segment->p_vaddr < segment->p_filesz)
			return segment;
	}
	return NULL;
}

int elf_file_offset(struct elf_file *file, uint64_t vaddr, uint64_t *offset)
{
	const GElf_Phdr *segment = segment_of(file, vaddr);

	if (!segment)
		return -ENOENT;
	*offset = vaddr - segment->p_vaddr + segment->p_offset;
	return 0;
}

/* The segment whose file part contains an offset; NULL: none. */
static const GElf_Phdr *segment_at(const struct elf_file *file, uint64_t offset)
{
	for (size_t i = 0; i < file->segment_count; i++) {
		const GElf_Phdr *segment = &file->segments[i];

		if (segment->p_type == PT_LOAD && offset >= segment->p_offset &&
		    offset - segment->p_offset < segment->p_filesz)
			return segment;
	}
	return NULL;
}

int elf_file_vaddr(struct elf_file *file, uint64_t offset, uint64_t *vaddr)
{
	const GElf_Phdr *segment = segment_at(file, offset);

	if (!segment)
		return -ENOENT;
	*vaddr = offset - segment->p_offset + segment->p_vaddr;
	return 0;
}

int elf_file_segment(const struct elf_file *file, uint64_t offset, struct elf_segment *out)
{
	const GElf_Phdr *segment = segment_at(file, offset);
	uint64_t limit;

	/* A file whose segments are not congruent cannot be mapped as they say. */
	if (!segment || (segment->p_vaddr ^ segment->p_offset) % PAGE_BYTES ||
	    __builtin_add_overflow(segment->p_vaddr, segment->p_filesz, &limit) ||
	    __builtin_add_overflow(limit, PAGE_BYTES - 1, &limit))
		return -ENOENT;
	out->start = segment->p_vaddr - segment->p_vaddr % PAGE_BYTES;
	out->limit = limit - limit % PAGE_BYTES;
	out->offset = segment->p_offset - segment->p_offset % PAGE_BYTES;
	return 0;
}

int elf_file_read(struct elf_file *file, uint64_t vaddr, void *out, size_t bytes)
{
	const GElf_Phdr *segment = segment_of(file, vaddr);
	size_t done = 0;

	if (!segment)
		return 0;
	uint64_t into = vaddr - segment->p_vaddr;
	if (bytes > segment->p_filesz - into)
		bytes = segment->p_filesz - into;
	if (bytes > INT_MAX)
		bytes = INT_MAX;
	while (done < bytes) {
		ssize_t n = pread(file->fd, (char *)out + done, bytes - done,
				  (off_t)(segment->p_offset + into + done));

		if (n > 0)
			done += (size_t)n;
		else if (n == 0)
			break; /* the file was truncated after it was opened */
		else if (errno != EINTR)
			return error_errno();
	}
	return (int)done;
}

int elf_file_bias(struct elf_file *file, uint64_t map_start, uint64_t map_offset, uint64_t *bias)
{
	/*
	 * The last page of one segment and the first of the next may be the same page of the file.
	 * A map that begins with this page more likely belongs to the second segment: a map of the
	 * first would begin earlier.
	 */
	const GElf_Phdr *best = NULL;
	uint64_t page, within = page_bytes() - 1;

	for (size_t i = 0; i < file->segment_count; i++) {
		const GElf_Phdr *segment = &file->segments[i];

		if (segment->p_type != PT_LOAD || !segment->p_filesz)
			continue;
		page = segment->p_offset & ~within;
		if (map_offset == page) {
			best = segment;
			break;
		}
		if (!best && map_offset > page &&
		    map_offset - segment->p_offset < segment->p_filesz)
			best = segment;
	}
	if (!best)
		return -ENOENT;
	page = best->p_offset & ~within;
	*bias = map_start - (map_offset - page) - (best->p_vaddr & ~within);
	return 0;
}

int elf_file_tls(struct elf_file *file, uint64_t *block_bytes)
{
	const GElf_Phdr *segment = elf_file_find_segment(file, PT_TLS);

	if (!segment)
		return -ENOENT;
	uint64_t align = segment->p_align ? segment->p_align : 1;
	*block_bytes = (segment->p_memsz + align - 1) & ~(align - 1);
	return 0;
}

/* --- elf debugdata ---------------------------------------------------------------------------- */

/*
 * The symbols that a stripped file carries with it, packed by xz, in its section .gnu_debugdata:
 * an ELF file with the .symtab of its functions ("MiniDebugInfo", as Fedora makes it).
 */

#define ELF_DEBUGDATA_MAX (64u << 20) /* bytes, unpacked */

#define PIECE_BYTES  (64u << 10)
#define MEMORY_BYTES (64u << 20) /* xz -9 needs 65 MiB, and the symbols of no file need that */

static int unpack(lzma_stream *stream, int fd)
{
	uint8_t *piece = malloc(PIECE_BYTES);
	lzma_ret state = LZMA_OK;
	int err = piece ? 0 : -ENOMEM;

	while (!err && state == LZMA_OK) {
		stream->next_out = piece;
		stream->avail_out = PIECE_BYTES;
		state = lzma_code(stream, LZMA_FINISH);
		if (state != LZMA_OK && state != LZMA_STREAM_END)
			err = error_set(-ENOEXEC, "damaged .gnu_debugdata: xz error %d", state);
		else if (stream->total_out > ELF_DEBUGDATA_MAX)
			err = error_set(-ENOEXEC, ".gnu_debugdata has more than %u MiB unpacked",
					ELF_DEBUGDATA_MAX >> 20);
		else
			err = descriptor_write(fd, piece, PIECE_BYTES - stream->avail_out);
	}
	free(piece);
	return err;
}

static int debugdata_unpack(const Elf_Data *data, int fd)
{
	lzma_stream stream = LZMA_STREAM_INIT;

	if (lzma_stream_decoder(&stream, MEMORY_BYTES, 0) != LZMA_OK)
		return -ENOMEM;
	stream.next_in = data->d_buf;
	stream.avail_in = data->d_size;
	int err = unpack(&stream, fd);
	lzma_end(&stream);
	return err;
}

/*
 * Unpacks it into a file in memory. The section is hostile, and liblzma takes up to 64 MiB: call it
 * only in a process that may be killed (object/symbols/worker.h). 0: close with elf_debug_close();
 * -ENOENT: there is none; -ENOEXEC (error_set): damaged or too large; -ENOMEM; -errno.
 */
static int elf_debugdata_open(struct elf_debug *out, Elf *elf)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(elf, ".gnu_debugdata", &header);
	Elf_Data *data = section && header.sh_size <= ELF_DEBUGDATA_MAX
				 ? elf_section_data(section, &header)
				 : NULL;
	uint64_t bytes;

	if (!data || !data->d_size)
		return -ENOENT;
	int fd = memfd_create("debugdata", MFD_CLOEXEC);
	if (fd < 0)
		return error_errno();
	int err = debugdata_unpack(data, fd) ?: elf_section_begin(&out->elf, fd, &bytes);
	if (err)
		close(fd);
	else
		out->fd = fd;
	return err;
}

/* --- elf file debug --------------------------------------------------------------------------- */

/* Searches the debug file, once. 0: it is open; -ENOENT. */
static int elf_file_load_debug(struct elf_file *file)
{
	if (file->debug_err > 0)
		file->debug_err = elf_debug_open(&file->debug, file->elf, file->build_id,
						 file->path, file->debug_root);
	return file->debug_err;
}

/* Unpacks .gnu_debugdata, once, in a process dedicated to it. 0: it is open; its error. */
static int elf_file_load_debugdata(struct elf_file *file)
{
	if (file->debugdata_err > 0)
		file->debugdata_err = elf_debugdata_open(&file->debugdata, file->elf);
	return file->debugdata_err;
}

int elf_file_debug_fd(struct elf_file *file)
{
	return elf_file_load_debug(file) ? -1 : file->debug.fd;
}

int elf_file_open_apart(struct elf_file **out, int fd, int debug_fd)
{
	struct elf_file *file;
	uint64_t bytes;
	int err = elf_file_open(&file, fd, "", NULL);

	if (err)
		return err;
	file->symbols_max = ELF_SYMBOLS_MAX;
	file->debugdata_err = 1;
	file->debug_err =
		debug_fd < 0 ? -ENOENT : elf_section_begin(&file->debug.elf, debug_fd, &bytes);
	if (!file->debug_err)
		file->debug.fd = debug_fd;
	else if (debug_fd >= 0)
		close(debug_fd);
	*out = file;
	return 0;
}

static bool has_dwarf(Elf *elf)
{
	GElf_Shdr header;

	return elf_section_by_name(elf, ".debug_info", &header) && header.sh_type != SHT_NOBITS;
}

int elf_file_find_debug(struct elf_file *file, int root)
{
	if (!file->debug_err)
		return 0;
	file->debug_err =
		elf_debug_open_in(&file->debug, file->elf, file->build_id, file->path, root);
	if (file->debug_err) {
		file->debug_err = 1; /* the other directories are searched later */
		return -ENOENT;
	}
	/* Its common part can only be in the same root. */
	if (!has_dwarf(file->elf) &&
	    !elf_debug_open_alternate(&file->alternate, file->debug.elf, NULL, root))
		file->alternate_fd = file->alternate.fd;
	return 0;
}

int elf_file_dwarf(struct elf_file *file, int *fd, int *alternate_fd)
{
	Elf *elf = file->elf;

	if (file->dwarf_err > 0) {
		file->dwarf_err = 0;
		file->dwarf_fd = file->fd;
		if (!has_dwarf(elf)) {
			file->dwarf_err = elf_file_load_debug(file);
			if (!file->dwarf_err && !has_dwarf(file->debug.elf))
				file->dwarf_err = -ENOENT;
			elf = file->debug.elf;
			file->dwarf_fd = file->debug.fd;
		}
		if (!file->dwarf_err && file->alternate_fd < 0 &&
		    !elf_debug_open_alternate(&file->alternate, elf, file->debug_root, -1))
			file->alternate_fd = file->alternate.fd;
	}
	if (file->dwarf_err)
		return file->dwarf_err;
	*fd = file->dwarf_fd;
	*alternate_fd = file->alternate_fd;
	return 0;
}

int elf_file_lacks_debug(struct elf_file *file, char build_id[ELF_BUILD_ID_HEX_MAX])
{
	int fd, alternate_fd;

	if (elf_file_dwarf(file, &fd, &alternate_fd)) {
		snprintf(build_id, ELF_BUILD_ID_HEX_MAX, "%s", file->build_id);
		return build_id[0] && file->debug_err;
	}
	return alternate_fd < 0 &&
	       !elf_debug_alternate_id(fd == file->fd ? file->elf : file->debug.elf, build_id);
}

static bool is_of(const struct elf_file *file, Elf *elf)
{
	char build_id[ELF_BUILD_ID_HEX_MAX];

	elf_section_build_id(elf, build_id);
	return build_id[0] && !strcmp(build_id, file->build_id);
}

int elf_file_take_debug(struct elf_file *file, int fd)
{
	struct elf_debug debug = {.fd = fd};
	uint64_t bytes;
	int err = elf_section_begin(&debug.elf, fd, &bytes);

	if (err) {
		close(fd);
		return -ENOENT;
	}
	if (!is_of(file, debug.elf) || !file->debug_err) {
		elf_debug_close(&debug);
		/* A common part lies in the cache of debuginfod's clients, where it is found. */
		file->dwarf_err = file->debug_err ? file->dwarf_err : 1;
		return file->debug_err ? -ENOENT : 0;
	}
	file->debug = debug;
	file->debug_err = 0;
	file->dwarf_err = 1;
	return 0;
}

static void elf_file_close_debug(struct elf_file *file)
{
	if (file->alternate_fd >= 0)
		elf_debug_close(&file->alternate);
	if (!file->debug_err)
		elf_debug_close(&file->debug);
	if (!file->debugdata_err)
		elf_debug_close(&file->debugdata);
}

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
		int err = elf_section_strings(file->elf, header.sh_link, &strings, &bytes);
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
	err = err ?: read_segments(file) ?: read_dynamic(file);
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
	descriptor_close(file->fd);
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

/* Loads the symbol table of a source if it is not loaded yet. 0; its error, which is kept. */
static int elf_file_load_table(struct elf_file *file, int source)
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

bool elf_file_has_symtab(const struct elf_file *file)
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
	size_t names;

	if (elf_getshdrstrndx(file->elf, &names) || names == SHN_UNDEF)
		return -ENOENT;
	while ((section = elf_nextscn(file->elf, section))) {
		if (!gelf_getshdr(section, &header) || !(header.sh_flags & SHF_ALLOC) || index--)
			continue;
		const char *name = elf_strptr(file->elf, names, header.sh_name);
		*out = (struct elf_section){.name = name ? name : "",
					    .vaddr = header.sh_addr,
					    .size = header.sh_size,
					    .code = !!(header.sh_flags & SHF_EXECINSTR),
					    .contents = header.sh_type != SHT_NOBITS};
		return 0;
	}
	return -ENOENT;
}

bool elf_file_is_executable(const struct elf_file *file)
{
	return file->executable;
}

const char *elf_file_soname(struct elf_file *file)
{
	return file->soname ? file->soname : "";
}

/* What the dynamic linker stores in the file's data: TLS module ids, imports, pointers. */

/*
 * Symbol 0 stands for the file itself. Any other symbol must be defined in it: otherwise the slot
 * may refer to another file.
 */
static int names_own_block(const struct elf_symbols *dynsym, uint64_t index)
{
	GElf_Sym symbol;

	if (!index)
		return 1;
	return dynsym->symbols && index < dynsym->count &&
	       gelf_getsym(dynsym->symbols, (int)index, &symbol) && symbol.st_shndx != SHN_UNDEF;
}

int elf_file_dtpmod_slot(struct elf_file *file, uint64_t *vaddr)
{
	uint64_t left = ELF_RELOCATIONS_MAX;
	Elf_Scn *section = NULL;
	GElf_Rela relocation;
	Elf_Data *data;

	if (!elf_file_find_segment(file, PT_TLS))
		return -ENOENT;
	elf_file_load_table(file, ELF_FROM_DYNSYM);
	while ((data = elf_imports_relocations(file->elf, &section, &left))) {
		for (int i = 0; gelf_getrela(data, i, &relocation); i++) {
			if (GELF_R_TYPE(relocation.r_info) != ARCH_MODULE ||
			    !names_own_block(&file->tables[ELF_FROM_DYNSYM],
					     GELF_R_SYM(relocation.r_info)))
				continue;
			*vaddr = relocation.r_offset;
			return 0;
		}
	}
	return -ENOENT;
}

/* Loads all imports, once. 0; -ENOEXEC; -ENOMEM. */
static int load_imports(struct elf_file *file)
{
	if (file->imports_err > 0) {
		elf_file_load_table(file, ELF_FROM_DYNSYM);
		file->imports_err =
			elf_imports_load(&file->imports, file->elf, &file->tables[ELF_FROM_DYNSYM]);
	}
	return file->imports_err;
}

size_t elf_file_import_slots(struct elf_file *file, const char *name, uint64_t *vaddrs,
			     size_t capacity)
{
	return load_imports(file) ? 0 : elf_imports_find(&file->imports, name, vaddrs, capacity);
}

int elf_file_import_at(struct elf_file *file, uint64_t vaddr, const char **name)
{
	const char *found = load_imports(file) ? NULL : elf_imports_at(&file->imports, vaddr);

	if (!found)
		return -ENOENT;
	*name = found;
	return 0;
}

/* The value that the relocation stores. */
static int relocation_value(struct elf_file *file, const GElf_Rela *relocation, uint64_t *value)
{
	const struct elf_symbols *dynsym = &file->tables[ELF_FROM_DYNSYM];
	uint64_t type = GELF_R_TYPE(relocation->r_info), index = GELF_R_SYM(relocation->r_info);
	GElf_Sym symbol = {.st_value = 0};

	if (type != ARCH_RELATIVE && (!index || !names_own_block(dynsym, index) ||
				      !gelf_getsym(dynsym->symbols, (int)index, &symbol)))
		return -ENOENT;
	*value = symbol.st_value + (uint64_t)relocation->r_addend;
	return 0;
}

int elf_file_pointer(struct elf_file *file, uint64_t vaddr, uint64_t *value)
{
	uint64_t left = ELF_RELOCATIONS_MAX;
	Elf_Scn *section = NULL;
	GElf_Rela relocation;
	Elf_Data *data;

	elf_file_load_table(file, ELF_FROM_DYNSYM);
	while ((data = elf_imports_relocations(file->elf, &section, &left)))
		for (int i = 0; gelf_getrela(data, i, &relocation); i++)
			if (relocation.r_offset == vaddr)
				return relocation_value(file, &relocation, value);
	return elf_file_read(file, vaddr, value, sizeof(*value)) == (int)sizeof(*value) ? 0
											: -ENOENT;
}

#define NOTE_TYPE 3
#define OWNER     "stapsdt"

struct note_header {
	uint32_t name_bytes, desc_bytes, type;
};

static int corrupt(const char *what)
{
	return error_set(-ENOEXEC, "corrupt USDT notes: %s", what);
}

/* A text and its NUL, at *at in the description, which is moved behind them; NULL: no NUL. */
static const char *text_take(const uint8_t *desc, size_t bytes, size_t *at)
{
	const char *text = (const char *)desc + *at;
	size_t length = strnlen(text, bytes - *at);

	if (length == bytes - *at)
		return NULL;
	*at += length + 1;
	return text;
}

static int desc_parse(const uint8_t *desc, size_t bytes, elf_usdt_fn *each, void *context)
{
	uint64_t addresses[3];
	size_t at = sizeof(addresses);

	if (bytes < sizeof(addresses))
		return corrupt("one is too short");
	memcpy(addresses, desc, sizeof(addresses));
	struct elf_usdt probe = (struct elf_usdt){
		.vaddr = addresses[0], .base = addresses[1], .semaphore = addresses[2]};
	probe.provider = text_take(desc, bytes, &at);
	probe.name = probe.provider ? text_take(desc, bytes, &at) : NULL;
	probe.arguments = probe.name ? text_take(desc, bytes, &at) : NULL;
	return probe.arguments ? each(context, &probe) : corrupt("a text has no end");
}

static size_t padded(uint32_t bytes)
{
	return ((size_t)bytes + 3) & ~(size_t)3;
}

int elf_usdt_parse(const uint8_t *notes, size_t bytes, elf_usdt_fn *each, void *context)
{
	struct note_header header;
	int err = 0;

	while (!err && bytes >= sizeof(header)) {
		const uint8_t *name = notes + sizeof(header);
		size_t left = bytes - sizeof(header), name_bytes;

		memcpy(&header, notes, sizeof(header));
		name_bytes = padded(header.name_bytes);
		if (name_bytes > left || header.desc_bytes > left - name_bytes)
			return corrupt("one exceeds the section");
		if (header.type == NOTE_TYPE && header.name_bytes == sizeof(OWNER) &&
		    !memcmp(name, OWNER, sizeof(OWNER)))
			err = desc_parse(name + name_bytes, header.desc_bytes, each, context);
		left -= name_bytes;
		name_bytes += padded(header.desc_bytes) < left ? padded(header.desc_bytes) : left;
		notes = name + name_bytes;
		bytes -= sizeof(header) + name_bytes;
	}
	return err;
}

struct moved {
	uint64_t base; /* of .stapsdt.base now; 0: not known */
	elf_usdt_fn *each;
	void *context;
};

static int moved_each(void *context, const struct elf_usdt *probe)
{
	const struct moved *moved = context;
	struct elf_usdt now = *probe;

	if (moved->base && probe->base) {
		now.vaddr += moved->base - probe->base;
		if (now.semaphore)
			now.semaphore += moved->base - probe->base;
	}
	return moved->each(moved->context, &now);
}

int elf_file_usdt(struct elf_file *file, elf_usdt_fn *each, void *context)
{
	struct moved moved = {.each = each, .context = context};
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(file->elf, ".note.stapsdt", &header);
	uint64_t bytes;

	if (!section)
		return 0;
	if (header.sh_size > ELF_USDT_BYTES_MAX)
		return corrupt("the section is too large");
	Elf_Data *data = elf_section_data(section, &header);
	if (!data)
		return -ENOEXEC;
	if (elf_file_section(file, ".stapsdt.base", &moved.base, &bytes))
		moved.base = 0;
	return elf_usdt_parse(data->d_buf, data->d_size, moved_each, &moved);
}

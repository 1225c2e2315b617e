/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "elf/elf_file.h"
#include "elf/elf_imports.h"
#include "elf/elf_symbols.h"
#include "large_elf.h"
#include "process/process.h"
#include "pythons.h"
#include "sanitized.h"

#define NO_DEBUG "/nonexistent" /* a debug root without any debug file */

/*
 * Things of this very program, to be found in its own file; volatile, or a compiler may shrink or
 * drop them.
 */
static _Thread_local volatile uint64_t landmark_tls[4];
static volatile uint64_t landmark_data[4] = {0x1122334455667788, 2, 3, 4};

static __attribute__((noinline)) uint64_t landmark_function(uint64_t x)
{
	landmark_tls[1] += x;
	return landmark_tls[1] + landmark_data[x & 3];
}

static struct elf_file *open_elf(const char *path, const char *debug_root)
{
	struct elf_file *file = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(elf_file_open(&file, fd, path, debug_root), 0);
	assert_int_equal(elf_file_fd(file), fd);
	assert_string_equal(elf_file_path(file), path);
	return file;
}

/* Load bias of the mapped file that holds address, from every one of its maps; they must agree. */
static uint64_t own_bias(struct elf_file *file, const void *address)
{
	const struct process_map *found = NULL;
	struct process_maps maps;
	uint64_t bias = 0;

	assert_int_equal(process_maps_read(getpid(), &maps), 0);
	for (size_t i = 0; i < maps.count; i++)
		if ((uintptr_t)address >= maps.entries[i].start &&
		    (uintptr_t)address < maps.entries[i].end)
			found = &maps.entries[i];
	assert_non_null(found);
	for (size_t i = 0; i < maps.count; i++)
		if (maps.entries[i].inode == found->inode &&
		    !strcmp(maps.entries[i].path, found->path)) {
			assert_int_equal(elf_file_bias(file, maps.entries[i].start,
						       maps.entries[i].offset, &bias),
					 0);
			break;
		}
	process_maps_free(&maps);
	return bias;
}

static void own_symbols_are_where_they_say(void **state)
{
	struct elf_file *file = open_elf("/proc/self/exe", NO_DEBUG);
	uint64_t bias = own_bias(file, (void *)landmark_data), offset, vaddr, block, word = 0;
	struct elf_symbol symbol, at;

	(void)state;
	assert_true(landmark_function(1) > 0);
	assert_int_equal(elf_file_is_executable(file), 1);
	assert_int_equal(elf_file_has_symtab(file), 1);
	assert_string_equal(elf_file_soname(file), "");

	assert_int_equal(elf_file_symbol(file, "landmark_function", &symbol), 0);
	assert_string_equal(symbol.name, "landmark_function");
	assert_int_equal(symbol.vaddr + bias, (uintptr_t)landmark_function);
	assert_int_equal(symbol.source, ELF_FROM_SYMTAB);
	assert_int_equal(symbol.function, 1);
	assert_int_equal(symbol.tls, 0);
	assert_int_equal(symbol.ifunc, 0);
	assert_true(symbol.size > 1);
	assert_int_equal(elf_file_symbol_at(file, symbol.vaddr + symbol.size - 1, &at), 0);
	assert_string_equal(at.name, "landmark_function");
	assert_int_equal(elf_file_offset(file, symbol.vaddr, &offset), 0);
	assert_int_equal(elf_file_vaddr(file, offset, &vaddr), 0);
	assert_int_equal(vaddr, symbol.vaddr);
	assert_int_equal(elf_file_read(file, symbol.vaddr, &word, 8), 8);
	assert_memory_equal(&word, (void *)(uintptr_t)landmark_function, 8);

	assert_int_equal(elf_file_symbol(file, "landmark_data", &symbol), 0);
	assert_int_equal(symbol.vaddr + bias, (uintptr_t)landmark_data);
	assert_true(symbol.size >= sizeof(landmark_data)); /* ASan pads */
	assert_int_equal(symbol.function, 0);
	assert_int_equal(elf_file_read(file, symbol.vaddr, &word, 8), 8);
	assert_true(word == landmark_data[0]);
	assert_int_equal(elf_file_symbol_at(file, symbol.vaddr, &at), -ENOENT); /* no function */

	assert_int_equal(elf_file_symbol(file, "landmark_tls", &symbol), 0);
	assert_int_equal(symbol.tls, 1);
	assert_int_equal(elf_file_tls(file, &block), 0);
	assert_true(symbol.vaddr + symbol.size <= block);

	assert_int_equal(elf_file_symbol(file, "landmark", &symbol), -ENOENT);
	assert_int_equal(elf_file_symbol(file, "", &symbol), -ENOENT);
	assert_int_equal(elf_file_symbol_at(file, UINT64_MAX, &symbol), -ENOENT);
	assert_int_equal(elf_file_offset(file, UINT64_MAX, &offset), -ENOENT);
	assert_int_equal(elf_file_vaddr(file, UINT64_MAX, &offset), -ENOENT);
	assert_int_equal(elf_file_bias(file, 4096, 1ull << 40, &offset), -ENOENT);
	assert_int_equal(elf_file_read(file, UINT64_MAX - 2, &word, 8), 0);
	assert_int_equal(elf_file_section(file, ".nonsense", &vaddr, &block), -ENOENT);
	elf_file_close(file);
	elf_file_close(NULL);
}

/*
 * Who has other work is kept from it by no more symbols than are looked through in a moment; who
 * has not reads four times as many.
 */
static void large_tables_are_for_a_process_of_their_own(void **state)
{
	uint64_t last = LARGE_BASE + (uint64_t)ELF_SYMBOLS_HERE * LARGE_STEP;
	struct elf_symbol symbol;
	struct elf_file *file;

	(void)state;
	assert_int_equal(elf_file_open(&file, large_elf(ELF_SYMBOLS_HERE), "/large", NO_DEBUG), 0);
	assert_int_equal(elf_file_symbol(file, "z", &symbol), 0);
	assert_int_equal(elf_file_symbol(file, "zz", &symbol), -ENOENT);
	elf_file_close(file);

	assert_int_equal(elf_file_open(&file, large_elf(ELF_SYMBOLS_HERE + 1), "/large", NO_DEBUG),
			 0);
	assert_int_equal(elf_file_symbol(file, "z", &symbol), -ENOEXEC);
	assert_int_equal(elf_file_symbol_at(file, last, &symbol), -ENOEXEC);
	assert_non_null(strstr(error_reason(-ENOEXEC), "1048576 symbols"));
	assert_int_equal(elf_file_symbol_memory(file), 0); /* nothing was read */
	elf_file_close(file);

	assert_int_equal(elf_file_open_apart(&file, large_elf(ELF_SYMBOLS_HERE + 1), -1), 0);
	assert_int_equal(elf_file_symbol_at(file, last, &symbol), 0);
	assert_int_equal(symbol.name[0], large_elf_name(last));
	assert_int_equal(elf_file_symbol_at(file, last + LARGE_STEP, &symbol), -ENOENT);
	elf_file_close(file);
}

static uint64_t anonymous_bytes(void)
{
	uint64_t bytes, anonymous;

	malloc_trim(0);
	assert_int_equal(process_rss_read(getpid(), &bytes, &anonymous), 0);
	return anonymous;
}

/* A file that is kept for its descriptor does not keep its symbols; asked again, it has them. */
static void what_is_forgotten_takes_no_memory(void **state)
{
	enum { TABLE = ELF_SYMBOLS_HERE * sizeof(Elf64_Sym) };
	int fd = large_elf(ELF_SYMBOLS_HERE);
	struct elf_symbol symbol;
	struct elf_file *file;
	uint64_t before;

	(void)state;
#if SANITIZED
	print_message("the sanitizer keeps what was freed\n");
	skip();
#endif
	before = anonymous_bytes();
	assert_int_equal(elf_file_open(&file, fd, "/large", NO_DEBUG), 0);
	assert_int_equal(elf_file_symbol(file, "z", &symbol), 0);
	assert_true(anonymous_bytes() > before + TABLE);
	elf_file_forget(file);
	assert_true(anonymous_bytes() < before + TABLE / 4);
	assert_int_equal(elf_file_symbol_memory(file), 0);
	assert_int_equal(elf_file_symbol(file, "y", &symbol), 0);
	assert_int_equal(symbol.name[0], 'y');
	elf_file_close(file);
}

/* Of the versions of a name the one that a linker would take: glibc has many names twice. */
static void libc_has_default_versions(void **state)
{
	static const char *const names[] = {
		"qsort_r", "getenv", "regexec", "realpath", "pthread_cond_wait", "posix_spawn"};
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	struct elf_symbol symbol;
	struct elf_file *file;
	uint64_t bias;
	char *path;
	Dl_info info;

	(void)state;
	if (!libc) {
		print_message("skipped: no glibc\n");
		skip();
	}
	assert_true(dladdr(dlsym(libc, "qsort_r"), &info) != 0);
	path = realpath(info.dli_fname, NULL);
	assert_non_null(path);
	file = open_elf(path, NO_DEBUG);
	bias = own_bias(file, info.dli_fbase);
	assert_int_equal(bias, (uintptr_t)info.dli_fbase);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(elf_file_symbol(file, names[i], &symbol), 0);
		assert_int_equal(symbol.source, ELF_FROM_DYNSYM);
		assert_int_equal(symbol.vaddr + bias, (uintptr_t)dlsym(libc, names[i]));
	}
	assert_int_equal(elf_file_symbol(file, "memcpy", &symbol), 0);
	assert_int_equal(symbol.ifunc, 1);
	assert_int_equal(symbol.function, 1);
	/* Of the names of one function the one that programs know. */
	assert_int_equal(elf_file_symbol(file, "malloc", &symbol), 0);
	assert_int_equal(elf_file_symbol_at(file, symbol.vaddr + 1, &symbol), 0);
	assert_string_equal(symbol.name, "malloc");
	/* It can be run, and is a library all the same. */
	assert_int_equal(elf_file_is_executable(file), 0);
	assert_string_equal(elf_file_soname(file), "libc.so.6");
	assert_true(strlen(elf_file_build_id(file)) >= 32);
	elf_file_close(file);
	free(path);
	dlclose(libc);
}

static void check_libpython(struct elf_file *file, unsigned int minor)
{
	struct elf_symbol runtime, function, at, symbol;
	uint64_t vaddr, size, slot, block;
	char soname[32];

	snprintf(soname, sizeof(soname), "libpython3.%u.so.1.0", minor);
	assert_string_equal(elf_file_soname(file), soname);
	assert_int_equal(elf_file_is_executable(file), 0);
	assert_int_equal(elf_file_symbol(file, "PyObject_Malloc", &function), 0);
	assert_int_equal(function.source, ELF_FROM_DYNSYM);
	assert_int_equal(function.function, 1);
	assert_int_equal(elf_file_symbol_at(file, function.vaddr + 1, &at), 0);
	assert_int_equal(at.vaddr, function.vaddr);
	assert_int_equal(elf_file_symbol(file, "_PyRuntime", &runtime), 0);
	assert_int_equal(runtime.function, 0);
	assert_true(runtime.size > 0);
	assert_int_equal(elf_file_symbol(file, "PyNoSuchThing", &symbol), -ENOENT);

	if (minor >= 11) {
		assert_int_equal(elf_file_section(file, ".PyRuntime", &vaddr, &size), 0);
		assert_int_equal(vaddr, runtime.vaddr);
		assert_true(size >= runtime.size);
	}
	if (elf_file_has_symtab(file)) {
		assert_int_equal(elf_file_symbol(file, "_PyObject_Malloc", &symbol), 0);
		assert_int_not_equal(symbol.source, ELF_FROM_DYNSYM);
		assert_int_equal(symbol.function, 1);
	}
	if (minor >= 12) {
		assert_int_equal(elf_file_dtpmod_slot(file, &slot), 0);
		assert_int_equal(elf_file_tls(file, &block), 0);
		assert_int_equal(block % 8, 0);
		/* The slot is in the GOT, which is the loader's to fill. */
		assert_int_equal(elf_file_section(file, ".got", &vaddr, &size), 0);
		assert_true(slot >= vaddr && slot + 16 <= vaddr + size);
		if (elf_file_has_symtab(file)) {
			assert_int_equal(elf_file_symbol(file, "_Py_tss_tstate", &symbol), 0);
			assert_int_equal(symbol.tls, 1);
			assert_true(symbol.vaddr + 8 <= block);
		}
	} else {
		assert_int_equal(elf_file_dtpmod_slot(file, &slot), -ENOENT);
		assert_int_equal(elf_file_tls(file, &block), -ENOENT);
	}
}

static void libpythons_have_their_symbols(void **state)
{
	char path[PATH_MAX];
	int found = 0;

	(void)state;
	for (unsigned int minor = 8; minor <= 13; minor++) {
		struct elf_file *file;

		if (!libpython_path(minor, path))
			continue;
		file = open_elf(path, NO_DEBUG);
		check_libpython(file, minor);
		elf_file_close(file);
		found++;
	}
	if (!found) {
		print_message("skipped: no shared libpython\n");
		skip();
	}
}

static void stripped_python_has_exported_symbols(void **state)
{
	struct elf_symbol symbol;
	struct elf_file *file;

	(void)state;
	if (access("/usr/bin/python3.11", R_OK)) {
		print_message("skipped: no /usr/bin/python3.11\n");
		skip();
	}
	file = open_elf("/usr/bin/python3.11", NO_DEBUG);
	if (elf_file_has_symtab(file)) {
		elf_file_close(file);
		print_message("skipped: /usr/bin/python3.11 is not stripped\n");
		skip();
	}
	assert_int_equal(elf_file_is_executable(file), 1);
	assert_int_equal(elf_file_symbol(file, "PyObject_Malloc", &symbol), 0);
	assert_int_equal(symbol.source, ELF_FROM_DYNSYM);
	assert_int_equal(elf_file_symbol(file, "_PyRuntime", &symbol), 0);
	assert_int_equal(elf_file_symbol(file, "_PyObject_Malloc", &symbol), -ENOENT);
	elf_file_close(file);
}

/*
 * --- debug files -----------------------------------------------------------------------------
 */

static char directory[] = "/tmp/tracer-test-XXXXXX";

static int make_directory(void **state)
{
	(void)state;
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
	char command[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return system(command);
}

static int remove_directory(void **state)
{
	(void)state;
	return run("rm -rf %s", directory) ? -1 : 0;
}

/* DIRECTORY/bin/program: this program stripped, with a link to DIRECTORY/program.debug. */
static void strip_ourselves(void)
{
	if (run("command -v objcopy >/dev/null")) {
		print_message("skipped: no objcopy\n");
		skip();
	}
	assert_int_equal(
		run("cd %s && mkdir bin && cp /proc/%d/exe full && objcopy --only-keep-debug full "
		    "program.debug && objcopy --strip-all --add-gnu-debuglink=program.debug full "
		    "bin/program",
		    directory, getpid()),
		0);
}

static void assert_landmark(const char *root, int expected)
{
	struct elf_symbol symbol;
	struct elf_file *file;
	char path[64];

	snprintf(path, sizeof(path), "%s/bin/program", directory);
	file = open_elf(path, root);
	assert_int_equal(elf_file_has_symtab(file), !expected);
	assert_int_equal(elf_file_symbol(file, "landmark_function", &symbol), expected);
	if (!expected) {
		assert_int_equal(symbol.source, ELF_FROM_DEBUG_FILE);
		assert_int_equal(symbol.vaddr + own_bias(file, (void *)landmark_data),
				 (uintptr_t)landmark_function);
		assert_int_equal(elf_file_symbol_at(file, symbol.vaddr, &symbol), 0);
		assert_string_equal(symbol.name, "landmark_function");
	}
	elf_file_close(file);
}

static void debug_file_by_link(void **state)
{
	char root[64];

	(void)state;
	strip_ourselves();
	snprintf(root, sizeof(root), "%s/root", directory);
	assert_landmark(root, -ENOENT);
	assert_int_equal(run("cd %s && mkdir -p root/%s/bin && cp program.debug root/%s/bin",
			     directory, directory, directory),
			 0);
	assert_landmark(root, 0);
	/* One byte more, and it is not the file that the checksum was made of. */
	assert_int_equal(run("printf x >> %s/%s/bin/program.debug", root, directory), 0);
	assert_landmark(root, -ENOENT);
}

static void debug_file_by_build_id(void **state)
{
	struct elf_file *self = open_elf("/proc/self/exe", NO_DEBUG);
	const char *id = elf_file_build_id(self);
	char root[64];

	(void)state;
	if (!*id) {
		elf_file_close(self);
		print_message("skipped: built without build id\n");
		skip();
	}
	strip_ourselves();
	snprintf(root, sizeof(root), "%s/root", directory);
	assert_int_equal(run("cd %s && mkdir -p root/.build-id/%.2s && cp program.debug "
			     "root/.build-id/%.2s/%s.debug",
			     directory, id, id, id + 2),
			 0);
	assert_landmark(root, 0);
	/* A file without that build id, a FIFO and a text are all as good as none. */
	assert_int_equal(run("cd %s && objcopy --remove-section=.note.gnu.build-id full "
			     "root/.build-id/%.2s/%s.debug",
			     directory, id, id + 2),
			 0);
	assert_landmark(root, -ENOENT);
	assert_int_equal(run("cd %s/.build-id/%.2s && rm %s.debug && mkfifo %s.debug", root, id,
			     id + 2, id + 2),
			 0);
	assert_landmark(root, -ENOENT);
	assert_int_equal(run("cd %s/.build-id/%.2s && rm %s.debug && echo > %s.debug", root, id,
			     id + 2, id + 2),
			 0);
	assert_landmark(root, -ENOENT);
	elf_file_close(self);
}

/*
 * --- hostile files ---------------------------------------------------------------------------
 */

struct image {
	int fd;               /* a copy of this program in memory */
	unsigned char *bytes; /* shared map of it */
	size_t size;
	Elf64_Ehdr *header;
};

static int make_image(void **state)
{
	static struct image image;
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat st;

	image.fd = memfd_create("image", MFD_CLOEXEC);
	if (self < 0 || image.fd < 0 || fstat(self, &st))
		return -1;
	image.size = (size_t)st.st_size;
	if (ftruncate(image.fd, st.st_size))
		return -1;
	image.bytes = mmap(NULL, image.size, PROT_READ | PROT_WRITE, MAP_SHARED, image.fd, 0);
	if (image.bytes == MAP_FAILED || pread(self, image.bytes, image.size, 0) != st.st_size)
		return -1;
	close(self);
	image.header = (Elf64_Ehdr *)image.bytes;
	*state = &image;
	return 0;
}

static int free_image(void **state)
{
	struct image *image = *state;

	munmap(image->bytes, image->size);
	return close(image->fd);
}

static Elf64_Shdr *image_section(struct image *image, uint32_t type)
{
	Elf64_Shdr *sections = (Elf64_Shdr *)(image->bytes + image->header->e_shoff);

	for (unsigned i = 0; i < image->header->e_shnum; i++)
		if (sections[i].sh_type == type)
			return &sections[i];
	fail_msg("no section of type %u", type);
	return NULL;
}

static int try_open(const struct image *image, struct elf_file **file)
{
	int fd = fcntl(image->fd, F_DUPFD_CLOEXEC, 0);
	int err;

	assert_true(fd >= 0);
	*file = NULL;
	err = elf_file_open(file, fd, "/image", NO_DEBUG);
	if (err) {
		assert_null(*file);
		assert_int_equal(close(fd), 0); /* still ours */
	}
	return err;
}

static void assert_refused(const struct image *image)
{
	struct elf_file *file;

	assert_int_equal(try_open(image, &file), -ENOEXEC);
}

/* Everything that can be asked; only the program's survival and known errors matter. */
static void ask_everything(struct elf_file *file)
{
	struct elf_symbol symbol;
	uint64_t a, b;
	char bytes[64];
	int errs[9];

	elf_file_build_id(file);
	elf_file_soname(file);
	elf_file_has_symtab(file);
	elf_file_is_executable(file);
	errs[0] = elf_file_symbol(file, "landmark_function", &symbol);
	if (!errs[0])
		assert_string_equal(symbol.name, "landmark_function");
	errs[1] = elf_file_symbol(file, "nothing", &symbol);
	errs[2] = elf_file_symbol_at(file, 0x2000, &symbol);
	if (!errs[2])
		assert_true(strlen(symbol.name) > 0);
	errs[3] = elf_file_section(file, ".text", &a, &b);
	errs[4] = elf_file_offset(file, 0x2000, &a);
	errs[5] = elf_file_vaddr(file, 0x2000, &a);
	errs[6] = elf_file_bias(file, 0x10000000, 0x1000, &a);
	errs[7] = elf_file_tls(file, &a);
	errs[8] = elf_file_dtpmod_slot(file, &a);
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++)
		assert_true(errs[i] == 0 || errs[i] == -ENOENT || errs[i] == -ENOEXEC ||
			    errs[i] == -ENOMEM);
	assert_true(elf_file_read(file, 0x2000, bytes, sizeof(bytes)) <= (int)sizeof(bytes));
}

static void other_files_are_refused(void **state)
{
	struct image *image = *state;
	struct elf_file *file = NULL;
	int fd;

	image->header->e_machine = EM_AARCH64;
	assert_refused(image);
	assert_string_equal(error_reason(-ENOEXEC), "not an ELF file of x86-64");
	image->header->e_machine = EM_X86_64;
	image->header->e_ident[EI_CLASS] = ELFCLASS32;
	assert_refused(image);
	image->header->e_ident[EI_CLASS] = ELFCLASS64;
	image->header->e_type = ET_CORE;
	assert_refused(image);
	image->header->e_type = ET_DYN;
	image->bytes[0] = 0;
	assert_refused(image);

	fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, "comm", NULL), -ENOEXEC);
	close(fd);
	fd = open("/", O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, "/", NULL), -EISDIR);
	close(fd);
	assert_int_equal(elf_file_open(&file, -1, "nothing", NULL), -EBADF);
	assert_null(file);
}

/* The section table stands at the end: without its last byte the file is not whole. */
static void truncated_files_are_refused(void **state)
{
	struct image *image = *state;
	size_t end = image->header->e_shoff + image->header->e_shnum * sizeof(Elf64_Shdr);
	struct elf_file *file;

	assert_int_equal(try_open(image, &file), 0);
	elf_file_close(file);
	for (size_t size = end - 1; size > 64; size -= size / 50 + 1) {
		assert_int_equal(ftruncate(image->fd, (off_t)size), 0);
		assert_refused(image);
	}
	for (size_t size = 0; size <= 64; size++) {
		assert_int_equal(ftruncate(image->fd, (off_t)size), 0);
		assert_refused(image);
	}
	assert_int_equal(ftruncate(image->fd, (off_t)image->size), 0);
}

/* It shrinks after it was opened: no look-up may end in a SIGBUS. */
static void file_truncated_while_open(void **state)
{
	struct image *image = *state;
	struct elf_file *file;

	assert_int_equal(try_open(image, &file), 0);
	assert_int_equal(ftruncate(image->fd, 4096), 0);
	ask_everything(file);
	elf_file_close(file);
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/* One to three flipped bits in what is read of a file; it is whole again after each round. */
static void flipped_bits_do_no_harm(void **state)
{
	static const uint32_t types[] = {SHT_DYNSYM, SHT_SYMTAB,  SHT_STRTAB,
					 SHT_RELA,   SHT_DYNAMIC, SHT_NOTE};
	struct image *image = *state;
	uint64_t seed = 1;
	int refused = 0, accepted = 0;

	for (int round = 0; round < 1500; round++) {
		size_t at[3], count = 1 + next_random(&seed) % 3;
		unsigned char mask[3];
		struct elf_file *file;

		for (size_t i = 0; i < count; i++) {
			uint64_t start = 0, size = sizeof(Elf64_Ehdr);
			const Elf64_Shdr *section;

			switch (next_random(&seed) % 4) {
			case 0:
				break;
			case 1:
				start = sizeof(Elf64_Ehdr);
				size = image->header->e_phnum * sizeof(Elf64_Phdr);
				break;
			case 2:
				start = image->size - 40 * sizeof(Elf64_Shdr);
				size = 40 * sizeof(Elf64_Shdr);
				break;
			default:
				section = image_section(image, types[next_random(&seed) % 6]);
				start = section->sh_offset;
				size = section->sh_size;
			}
			at[i] = start + next_random(&seed) % size;
			mask[i] = (unsigned char)(1u << next_random(&seed) % 8);
		}
		for (size_t i = 0; i < count; i++)
			image->bytes[at[i]] ^= mask[i];
		if (try_open(image, &file))
			refused++;
		else {
			accepted++;
			ask_everything(file);
			elf_file_close(file);
		}
		for (size_t i = 0; i < count; i++)
			image->bytes[at[i]] ^= mask[i];
	}
	/* Both must be common, or the flips hit nothing that matters. */
	assert_true(refused > 100);
	assert_true(accepted > 100);
}

/* A file of a terabyte that takes no room on disk, with a table as large: refused, not loaded. */
static void sparse_giants_are_refused(void **state)
{
	struct image *image = *state;
	Elf64_Shdr *symtab = image_section(image, SHT_SYMTAB);
	Elf64_Shdr *sections = (Elf64_Shdr *)(image->bytes + image->header->e_shoff);
	uint64_t before;

	if (ftruncate(image->fd, (off_t)1 << 40)) {
		print_message("skipped: no sparse files of that size\n");
		skip();
	}
	before = symtab->sh_size;
	symtab->sh_size = 24ull << 20; /* still small enough to be loaded by who does not look */
	assert_refused(image);
	symtab->sh_size = before;

	before = sections[symtab->sh_link].sh_size;
	sections[symtab->sh_link].sh_size = 1ull << 39;
	assert_refused(image);
	sections[symtab->sh_link].sh_size = before;

	sections[image->header->e_shstrndx].sh_size = 1ull << 39;
	assert_refused(image);
	/* The number of sections, given where the header has no room for it. */
	image->header->e_shnum = 0;
	sections[0].sh_size = 1ull << 32;
	assert_refused(image);
}

/* Sections that are all the same bytes, and more segments than a program has. */
static void what_costs_nothing_is_refused(void **state)
{
	struct image *image = *state;
	Elf64_Shdr *sections = (Elf64_Shdr *)(image->bytes + image->header->e_shoff);
	struct elf_file *file;
	uint16_t segments = image->header->e_phnum;
	unsigned notes = 0;

	image->header->e_phnum = 1025;
	assert_refused(image);
	image->header->e_phnum = segments;
	assert_int_equal(try_open(image, &file), 0);
	elf_file_close(file);
	for (unsigned i = 1; i < image->header->e_shnum; i++)
		if (sections[i].sh_type == SHT_PROGBITS && ++notes) {
			sections[i].sh_type = SHT_NOTE;
			sections[i].sh_offset = 0;
			sections[i].sh_size = image->size;
		}
	assert_true(notes > 8);
	assert_refused(image);
}

/* Puts a symbol table of these at the end of the file, in place of the one that it has. */
static void symtab_replace(struct image *image, const Elf64_Sym *symbols, size_t count)
{
	Elf64_Shdr *symtab = image_section(image, SHT_SYMTAB);
	size_t bytes = count * sizeof(*symbols);

	assert_int_equal(pwrite(image->fd, symbols, bytes, (off_t)image->size), bytes);
	symtab->sh_offset = image->size;
	symtab->sh_size = bytes;
}

/*
 * One function behind a million that begin later and end before what is asked for: hours where each
 * is looked at.
 */
static void many_symbols_are_quick_to_ask(void **state)
{
	enum { COUNT = 1000000, START = 1 << 30 };
	struct image *image = *state;
	Elf64_Shdr *symtab = image_section(image, SHT_SYMTAB);
	Elf64_Sym *symbols = calloc(COUNT, sizeof(*symbols));
	Elf64_Sym function = {0};
	struct elf_symbol symbol;
	struct elf_file *file;

	alarm(60);
	for (size_t i = 0; i < symtab->sh_size / sizeof(function) && !function.st_size; i++) {
		memcpy(&function, image->bytes + symtab->sh_offset + i * sizeof(function),
		       sizeof(function));
		if (ELF64_ST_TYPE(function.st_info) != STT_FUNC)
			function.st_size = 0;
	}
	assert_true(function.st_size > 0);
	for (size_t i = 0; i < COUNT; i++) {
		symbols[i] = function;
		symbols[i].st_value = i ? START + i : START;
		symbols[i].st_size = i ? 1 : 4 * COUNT;
	}
	symtab_replace(image, symbols, COUNT);
	assert_int_equal(try_open(image, &file), 0);
	for (uint64_t i = 0; i < COUNT; i++) {
		assert_int_equal(elf_file_symbol_at(file, START + 2 * COUNT + i, &symbol), 0);
		assert_int_equal(symbol.size, 4 * COUNT);
	}
	assert_int_equal(elf_file_symbol_at(file, START + 5, &symbol), 0);
	assert_int_equal(symbol.size, 1);
	alarm(0);
	elf_file_close(file);
	free(symbols);
}

/* The slot of the first relocation that puts an imported function's address somewhere. */
static uint64_t import_slot(const struct image *image, const Elf64_Shdr *section)
{
	const Elf64_Rela *relocation = (const Elf64_Rela *)(image->bytes + section->sh_offset),
			 *end;

	for (end = relocation + section->sh_size / sizeof(*relocation); relocation < end;
	     relocation++)
		if (ELF64_R_TYPE(relocation->r_info) == R_X86_64_JUMP_SLOT ||
		    ELF64_R_TYPE(relocation->r_info) == R_X86_64_GLOB_DAT)
			return relocation->r_offset;
	return 0;
}

/* What asks of a slot: its name, and whether what it points to is in the file. */
static int import_is_known(const struct image *image, uint64_t slot)
{
	struct elf_file *file;
	const char *name;
	uint64_t value;
	int known;

	assert_int_equal(try_open(image, &file), 0);
	known = !elf_file_import_at(file, slot, &name);
	/*
	 * An imported function is in another file; without its relocation the slot's bytes are
	 * taken as they are.
	 */
	assert_int_equal(elf_file_pointer(file, slot, &value) == -ENOENT, known);
	elf_file_close(file);
	return known;
}

static void relocations_that_nobody_carries_out_are_none(void **state)
{
	struct image *image = *state;
	Elf64_Shdr *sections = (Elf64_Shdr *)(image->bytes + image->header->e_shoff),
		   *section = NULL;
	uint64_t slot = 0, before;

	for (unsigned i = 1; i < image->header->e_shnum && !slot; i++) {
		section = &sections[i];
		slot = section->sh_type == SHT_RELA ? import_slot(image, section) : 0;
	}
	assert_true(slot);
	assert_true(import_is_known(image, slot));
	section->sh_flags ^= SHF_ALLOC;
	assert_false(import_is_known(image, slot));
	section->sh_flags ^= SHF_ALLOC;
	before = section->sh_size;
	section->sh_size = (ELF_RELOCATIONS_MAX + 1ull) * sizeof(Elf64_Rela);
	assert_int_equal(
		posix_fallocate(image->fd, 0, (off_t)(section->sh_offset + section->sh_size)), 0);
	assert_false(import_is_known(image, slot));
	section->sh_size = before;
	assert_true(import_is_known(image, slot));
	assert_int_equal(ftruncate(image->fd, (off_t)image->size), 0);
}

#define with_directory(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)
#define with_image(test)     cmocka_unit_test_setup_teardown(test, make_image, free_image)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_symbols_are_where_they_say),
		cmocka_unit_test(large_tables_are_for_a_process_of_their_own),
		cmocka_unit_test(what_is_forgotten_takes_no_memory),
		cmocka_unit_test(libc_has_default_versions),
		cmocka_unit_test(libpythons_have_their_symbols),
		cmocka_unit_test(stripped_python_has_exported_symbols),
		with_directory(debug_file_by_link),
		with_directory(debug_file_by_build_id),
		with_image(other_files_are_refused),
		with_image(truncated_files_are_refused),
		with_image(file_truncated_while_open),
		with_image(flipped_bits_do_no_harm),
		with_image(sparse_giants_are_refused),
		with_image(relocations_that_nobody_carries_out_are_none),
		with_image(what_costs_nothing_is_refused),
		with_image(many_symbols_are_quick_to_ask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

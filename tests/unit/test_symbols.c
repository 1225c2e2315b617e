/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/resource.h>

#include "base/account.h"
#include "base/clock.h"
#include "programs.h"
#include "symbols/dwarf.h"
#include "symbols/files.h"
#include "symbols/jit_map.h"
#include "symbols/symbols.h"

static char folder[PATH_MAX]; /* of this run */

static const char c_source[] = PROGRAM_TELL
	"static inline __attribute__((always_inline)) void innermost(int x) {\n"
	"	tell();\n"
	"	__asm__ volatile(\"\" :: \"r\"(x));\n"
	"}\n"
	"static inline __attribute__((always_inline)) void middle(int x) {\n"
	"	if (x) { int y = x + 1; innermost(y); __asm__ volatile(\"\" :: \"r\"(y)); }\n"
	"}\n"
	"__attribute__((noinline)) void outer(int x) {\n"
	"	middle(x);\n"
	"	__asm__ volatile(\"\");\n"
	"}\n"
	"static __attribute__((noinline)) void hidden(int x) { outer(x); __asm__ volatile(\"\"); "
	"}\n"
	"int main(int argc, char **argv) { (void)argv; hidden(argc); return 0; }\n";

static const char cxx_source[] = PROGRAM_TELL
	"#include <map>\n#include <string>\n#include <vector>\n"
	"namespace shop {\n"
	"struct Item { int price; int pay(int p) {\n"
	"	tell(); __asm__ volatile(\"\" ::: \"memory\"); return price + p; } };\n"
	"template <class T> struct Basket { std::vector<T> items;\n"
	"	__attribute__((noinline)) void add(const std::map<std::string, T> &from) {\n"
	"		for (auto &pair : from) items.push_back(pair.second + Item{1}.pay(2)); }\n"
	"	Basket &operator+=(int x) { auto f = [&](int y) __attribute__((noinline)) {\n"
	"		add({{\"a\", y}}); __asm__ volatile(\"\"); }; f(x); return *this; }\n"
	"}; }\n"
	"int main() { shop::Basket<int> b; b += 3; return b.items.size() == 7; }\n";

static const char rust_source[] =
	"use std::os::raw::c_void;\n"
	"extern \"C\" { fn backtrace(at: *mut *mut c_void, n: i32) -> i32;\n"
	"  fn write(fd: i32, at: *const c_void, n: usize) -> isize; fn read(fd: i32, at: *mut "
	"c_void, n: usize) -> isize; }\n"
	"#[inline(never)] fn tell() { unsafe { let mut at = [std::ptr::null_mut::<c_void>(); 64];\n"
	"  let n = backtrace(at.as_mut_ptr(), 64) as i64; let mut c = 0u8;\n"
	"  write(1, &n as *const i64 as *const c_void, 8); write(1, at.as_ptr() as *const c_void, "
	"n as usize * 8);\n"
	"  read(0, &mut c as *mut u8 as *mut c_void, 1); } }\n"
	"mod shop { pub struct Basket<T> { pub items: Vec<T> }\n"
	"  impl<T: Copy> Basket<T> {\n"
	"    #[inline(always)] fn inner(&mut self, x: T) {\n"
	"      super::tell();\n"
	"      self.items.push(x); }\n"
	"    #[inline(never)] pub fn add(&mut self, x: T) {\n"
	"      self.inner(x);\n"
	"      unsafe { std::ptr::read_volatile(&self.items.len()); } } } }\n"
	"fn main() { let mut b = shop::Basket { items: Vec::new() };\n"
	"  [1, 2].iter().take(1).for_each(|x| b.add(*x)); unsafe { "
	"std::ptr::read_volatile(&b.items.len()); } }\n";

static char *in_folder(char path[PATH_MAX], const char *name)
{
	assert_true(snprintf(path, PATH_MAX, "%.3000s/%s", folder, name) < PATH_MAX);
	return path;
}

/* Writes the source, runs the compiler; the program's path. */
static void build(char path[PATH_MAX], const char *name, const char *compiler, const char *suffix,
		  const char *source, const char *flags)
{
	char file[PATH_MAX + 8];

	need(compiler);
	in_folder(path, name);
	snprintf(file, sizeof(file), "%s.%s", path, suffix);
	text_write(file, source);
	assert_int_equal(run("cd %s && %s %s -o %s %s", folder, compiler, flags, name, file), 0);
}

/* The address in the file, as addr2line takes it. */
static int file_vaddr(const struct modules *modules, const char *path, uint64_t address,
		      uint64_t *vaddr)
{
	const struct module *module = modules_find(modules, address);

	assert_non_null(module);
	if (strcmp(module->path, path) != 0)
		return 0;
	assert_int_equal(file_read(module->file), 0);
	assert_int_equal(
		elf_file_vaddr(module->file->elf, address - module->start + module->offset, vaddr),
		0);
	return 1;
}

static void line_read(FILE *from, char *line, int room)
{
	assert_non_null(fgets(line, room, from));
	line[strcspn(line, "\n")] = '\0';
}

/* addr2line says the same of this address: functions, files and lines, and no more frames. */
static void same_as_addr2line(const char *path, uint64_t vaddr, const struct symbols_frame *frames,
			      int count)
{
	char command[PATH_MAX + 64], function[4096], place[PATH_MAX + 8], ours[PATH_MAX + 16];
	FILE *answer;

	snprintf(command, sizeof(command), "addr2line -fiCe %s 0x%llx", path,
		 (unsigned long long)vaddr);
	answer = popen(command, "re");
	assert_non_null(answer);
	for (int i = 0; i < count; i++) {
		char *note;

		line_read(answer, function, sizeof(function));
		line_read(answer, place, sizeof(place));
		note = strstr(place, " (discriminator");
		if (note)
			*note = '\0';
		snprintf(ours, sizeof(ours), "%s:%u", frames[i].filename, frames[i].line);
		/* it has no name for the file; ours is the module's */
		if (!strncmp(place, "??:", 3))
			snprintf(place, sizeof(place), "%s:0", path);
		assert_string_equal(frames[i].function, function);
		assert_string_equal(ours, place);
		assert_int_equal(frames[i].inlined, i < count - 1);
	}
	assert_null(fgets(place, sizeof(place), answer));
	pclose(answer);
}

/*
 * Every address of the stack that lies in the program itself against addr2line; the number of
 * frames, and of inlined ones.
 */
static int stack_compare(struct symbols *symbols, const char *path, int *inlined)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	struct program program;
	struct modules *modules;
	uint64_t vaddr;
	int total = 0;

	need("addr2line");
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	assert_int_equal(modules->refused, 0);
	for (size_t i = 0; i < program.depth; i++) {
		int count = symbols_resolve(symbols, modules, program.stack[i], NULL, frames,
					    SYMBOLS_FRAMES_MAX);

		assert_true(count > 0);
		if (!file_vaddr(modules, path, program.stack[i] - 1, &vaddr) ||
		    !strncmp(frames[0].function, "_start", 6))
			continue; /* the assembler's, which has a file but no line for addr2line */
		same_as_addr2line(path, vaddr, frames, count);
		total += count;
		*inlined += count - 1;
	}
	program_end(&program);
	modules_free(modules);
	return total;
}

static void compare_built(const char *name, const char *compiler, const char *suffix,
			  const char *source, const char *flags, int least, int least_inlined)
{
	struct symbols *symbols;
	struct symbols_stats stats;
	char path[PATH_MAX];
	int inlined = 0, total;

	build(path, name, compiler, suffix, source, flags);
	assert_int_equal(symbols_new(&symbols), 0);
	total = stack_compare(symbols, path, &inlined);
	assert_true(total >= least);
	assert_true(inlined >= least_inlined);
	symbols_stats(symbols, &stats);
	assert_int_equal(stats.dwarf_given_up + stats.names_given_up, 0);
	assert_int_equal(stats.worker_starts, 2); /* for tables, and for DWARF */
	symbols_free(symbols);
}

static void c_is_as_addr2line_has_it(void **state)
{
	(void)state;
	compare_built("c-pie", "gcc", "c", c_source, "-O2 -g -pie -fPIE", 6, 2);
	compare_built("c-fixed", "gcc", "c", c_source, "-O2 -g -no-pie", 6, 2);
	compare_built("c-dwarf4", "gcc", "c", c_source, "-O2 -gdwarf-4", 6, 2);
	compare_built("c-plain", "gcc", "c", c_source, "-O0 -g", 4, 0);
	compare_built("c-compressed", "gcc", "c", c_source, "-O2 -g -gz=zlib", 6, 2);
}

/* Without .debug_aranges, and with addresses by index. */
static void clang_is_as_addr2line_has_it(void **state)
{
	(void)state;
	compare_built("clang", "clang", "c", c_source, "-O2 -g", 6, 2);
}

static void cxx_is_as_addr2line_has_it(void **state)
{
	(void)state;
	compare_built("cxx", "g++", "cc", cxx_source, "-O2 -g", 4, 1);
}

static void rust_is_as_addr2line_has_it(void **state)
{
	(void)state;
	compare_built("rust", "rustc", "rs", rust_source, "-g -C opt-level=2", 4, 1);
	compare_built("rust-v0", "rustc", "rs", rust_source,
		      "-g -C opt-level=2 -C symbol-mangling-version=v0", 4, 1);
}

/* The stack of a program as "name name name", innermost first, up to main. */
static void stack_names(struct symbols *symbols, const struct modules *modules,
			const struct program *program, char *out, size_t room)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; i < program->depth; i++) {
		int count = symbols_resolve(symbols, modules, program->stack[i], NULL, frames,
					    SYMBOLS_FRAMES_MAX);

		assert_true(count > 0);
		for (int k = 0; k < count && used < room; k++) {
			used += (size_t)snprintf(out + used, room - used, "%s%s", used ? " " : "",
						 frames[k].function);
			if (!strcmp(frames[k].function, "main"))
				return;
		}
	}
}

static void names_of(struct symbols *symbols, const char *path, char *names, size_t room)
{
	struct program program;
	struct modules *modules;

	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	stack_names(symbols, modules, &program, names, room);
	program_end(&program);
	modules_free(modules);
}

static void without_dwarf_symbols_name_what_they_cover(void **state)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	struct symbols *symbols;
	struct program program;
	struct modules *modules;
	char path[PATH_MAX], names[4096], *open;

	(void)state;
	build(path, "no-dwarf", "gcc", "c", c_source, "-O2");
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	assert_string_equal(names, "tell outer hidden main");

	/*
	 * Exported functions alone: the others have no name, and are not given their neighbours'.
	 */
	build(path, "stripped", "gcc", "c", c_source, "-O2 -rdynamic -s");
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	stack_names(symbols, modules, &program, names, sizeof(names));
	open = strstr(names, "] outer [");
	assert_non_null(open);
	assert_int_equal(strncmp(names, "[stripped+0x", 12), 0);
	assert_int_equal(strncmp(open + 8, "[stripped+0x", 12), 0);
	assert_int_equal(symbols_resolve(symbols, modules, program.stack[1], NULL, frames, 1), 1);
	assert_string_equal(frames[0].function, "outer");
	assert_string_equal(frames[0].filename, path);
	assert_int_equal(frames[0].line, 0);
	program_end(&program);
	modules_free(modules);
	symbols_free(symbols);
}

/*
 * Takes the debug file of a program in the folder out of it, to be found by its build id at that
 * place.
 */
static void split_debug(const char *name, const char *place)
{
	need("objcopy");
	need("readelf");
	assert_int_equal(run("set -e; cd %s; objcopy --only-keep-debug %s debug; strip %s;"
			     "id=$(readelf -n %s | sed -n 's/.*Build ID: //p'); rest=${id#??};"
			     "to=$(echo %s | sed \"s/ID/$id/; s/XX/${id%%$rest}/; s/YY/$rest/\");"
			     "mkdir -p ${to%%/*}; mv debug $to",
			     folder, name, name, name, place),
			 0);
}

static const char all_names[] = "tell innermost middle outer hidden main";

static void debug_files_that_were_fetched_are_found(void **state)
{
	struct symbols *symbols;
	char path[PATH_MAX], cache[PATH_MAX], names[4096];

	(void)state;
	build(path, "split", "gcc", "c", c_source, "-O2 -g -Wl,--build-id=sha1");
	split_debug("split", "cache/ID/debuginfo");
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	assert_null(strstr(names, "innermost"));
	symbols_free(symbols);

	assert_int_equal(setenv("DEBUGINFOD_CACHE_PATH", in_folder(cache, "cache"), 1), 0);
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	unsetenv("DEBUGINFOD_CACHE_PATH");
	assert_string_equal(names, all_names);
	symbols_free(symbols);
}

/*
 * As in a container: the debug file lies in another root, where a link that leads out of it leads
 * nowhere.
 */
static void debug_files_of_another_root_are_found(void **state)
{
	char path[PATH_MAX], base[PATH_MAX];
	struct elf_file *file;
	int root, fd, debug, alternate;

	(void)state;
	build(path, "inside", "gcc", "c", c_source, "-O2 -g -Wl,--build-id=sha1");
	split_debug("inside", "root/usr/lib/debug/.build-id/XX/YY.debug");
	root = open(in_folder(base, "root"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(root >= 0);

	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
	assert_int_equal(elf_file_dwarf(file, &debug, &alternate), -ENOENT);
	elf_file_close(file);

	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
	assert_int_equal(elf_file_find_debug(file, root), 0);
	assert_int_equal(elf_file_dwarf(file, &debug, &alternate), 0);
	assert_int_not_equal(debug, elf_file_fd(file));
	assert_int_equal(alternate, -1);
	elf_file_close(file);

	assert_int_equal(run("cd %s && mv root/usr/lib/debug/.build-id away &&"
			     " ln -s %s/away root/usr/lib/debug/.build-id",
			     folder, folder),
			 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
	assert_int_equal(elf_file_find_debug(file, root), -ENOENT);
	elf_file_close(file);
	close(root);
}

/*
 * dwz moves what several debug files have in common to one of its own: there most names are then.
 */
static void what_dwz_has_moved_is_found(void **state)
{
	struct dwarf_frame frames[DWARF_INLINE_MAX + 1];
	char path[PATH_MAX], base[PATH_MAX];
	int root, fd, debug, alternate;
	struct dwarf_file *dwarf;
	struct elf_symbol symbol;
	struct elf_file *file;

	(void)state;
	need("dwz");
	need("objcopy");
	need("readelf");
	build(path, "other", "gcc", "c", c_source, "-O1 -g -Wl,--build-id=sha1");
	build(path, "moved", "gcc", "c", c_source, "-O2 -g -Wl,--build-id=sha1");
	assert_int_equal(
		run("set -e; cd %s; to=dwz/usr/lib/debug; mkdir -p $to/.dwz $to/.build-id;"
		    "for f in other moved; do objcopy --only-keep-debug $f $f.debug; done;"
		    "dwz -m $to/.dwz/common -M ../../.dwz/common other.debug moved.debug; strip "
		    "moved;"
		    "id=$(readelf -n moved | sed -n 's/.*Build ID: //p'); rest=${id#??};"
		    "to=$to/.build-id/${id%%$rest}; mkdir $to; mv moved.debug $to/$rest.debug",
		    folder),
		0);
	root = open(in_folder(base, "dwz"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
	assert_int_equal(elf_file_find_debug(file, root), 0);
	assert_int_equal(elf_file_dwarf(file, &debug, &alternate), 0);
	assert_true(alternate >= 0);
	assert_int_equal(elf_file_symbol(file, "outer", &symbol), 0);
	assert_int_equal(dwarf_file_open(&dwarf, debug, alternate), 0);
	assert_true(dwarf_file_frames(dwarf, symbol.vaddr + symbol.size - 1, frames,
				      DWARF_INLINE_MAX + 1) > 0);
	assert_string_equal(frames[0].function, "outer");
	assert_true(frames[0].line > 0);
	dwarf_file_close(dwarf);
	elf_file_close(file);
	close(root);
}

/* What the process had mapped when the modules were taken is all that is needed. */
static void ended_processes_keep_their_names(void **state)
{
	char path[PATH_MAX], names[4096];
	struct symbols *symbols;
	struct program program;
	struct modules *modules;

	(void)state;
	build(path, "short", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	program_end(&program);
	assert_int_equal(unlink(path), 0);
	stack_names(symbols, modules, &program, names, sizeof(names));
	assert_string_equal(names, all_names);
	modules_free(modules);
	assert_int_equal(modules_new(&modules, symbols, program.pid), -ESRCH);
	symbols_free(symbols);
}

/*
 * Who was told of every map needs no process any more; a fork of it has the same, until it maps
 * something else there.
 */
static void told_of_maps_they_name_what_has_ended(void **state)
{
	char path[PATH_MAX], names[4096];
	struct process_map other = {
		.end = 4096, .executable = 1, .inode = 1, .path = (char *)"/nowhere"};
	struct process_maps maps;
	struct symbols *symbols;
	struct program program;
	struct modules *modules, *child;

	(void)state;
	build(path, "told", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(process_maps_read(program.pid, &maps), 0);
	program_end(&program);
	assert_int_equal(modules_begin(&modules, symbols, program.pid), 0);
	for (size_t i = maps.count; i-- > 0;)
		if (maps.entries[i].executable && maps.entries[i].inode)
			assert_int_equal(modules_map(modules, &maps.entries[i]), 0);
	assert_int_equal(modules->refused, 0);
	stack_names(symbols, modules, &program, names, sizeof(names));
	assert_string_equal(names, all_names);
	assert_int_equal(modules_copy(&child, modules, program.pid + 1), 0);
	other.start = modules_find(modules, program.stack[0])->start;
	other.end += other.start;
	assert_int_equal(modules_map(modules, &other), 0);
	assert_int_equal(modules->refused, 1);
	assert_string_equal(modules_find(modules, other.start)->path, "/nowhere");
	modules_free(modules);
	stack_names(symbols, child, &program, names, sizeof(names));
	assert_string_equal(names, all_names);
	modules_free(child);
	process_maps_free(&maps);
	symbols_free(symbols);
}

static void deleted_files_keep_their_names(void **state)
{
	char path[PATH_MAX], names[4096];
	struct symbols *symbols;
	struct program program;
	struct modules *modules;
	size_t refused;

	(void)state;
	build(path, "deleted", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(run("cd %s && rm deleted && cp /bin/true deleted", folder), 0);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	stack_names(symbols, modules, &program, names, sizeof(names));
	refused = modules->refused;
	program_end(&program);
	modules_free(modules);
	symbols_free(symbols);
	if (refused) {
		/* Never those of the file that has its name now. */
		assert_int_equal(strncmp(names, "[deleted", 8), 0);
		print_message("skipped: no right to open /proc/PID/map_files\n");
		skip();
	}
	assert_string_equal(names, all_names);
}

/* A file is opened once for all processes, and again when it was written anew in place. */
static void processes_share_files(void **state)
{
	struct symbols_stats stats, again;
	char path[PATH_MAX], names[4096];
	struct symbols *symbols;

	(void)state;
	build(path, "shared", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, path, names, sizeof(names));
	symbols_stats(symbols, &stats);
	assert_true(stats.files > 1);
	names_of(symbols, path, names, sizeof(names));
	symbols_stats(symbols, &again);
	assert_int_equal(again.files, stats.files);
	assert_int_equal(again.addresses, stats.addresses);

	assert_int_equal(
		run("cd %s && sed 's/hidden/secret/g' shared.c >other.c && gcc -O2 -g -o other "
		    "other.c &&"
		    " cat other >shared",
		    folder),
		0);
	names_of(symbols, path, names, sizeof(names));
	assert_string_equal(names, "tell innermost middle outer secret main");
	symbols_free(symbols);
}

/*
 * A process that may open few files holds few, and says which it went without; those that are in
 * use are not let go.
 */
static void few_descriptors_are_enough(void **state)
{
	struct rlimit limit, few;
	struct symbols_stats stats;
	struct symbols *symbols;
	struct modules *modules;
	size_t files = 0;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = 20;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(symbols_new(&symbols), 0);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	for (size_t i = 0; i < modules->count; i++)
		files += modules->entries[i].inode != 0;
	symbols_stats(symbols, &stats);
	assert_true(files > 5);
	assert_int_equal(stats.files, 5);
	assert_true(modules->refused >= 1 && modules->refused + 5 <= files);
	modules_free(modules);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	assert_true(modules->refused >= 1);
	modules_free(modules);
	symbols_free(symbols);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static const char jit_source[] =
	"#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/mman.h>\n#include <unistd.h>\n"
	"int main(void) {\n"
	"	char name[64], c; long n = 1;\n"
	"	void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | "
	"MAP_ANONYMOUS, -1, 0);\n"
	"	FILE *file;\n"
	"	snprintf(name, sizeof(name), \"/tmp/perf-%d.map\", getpid());\n"
	"	file = fopen(name, \"w\");\n"
	"	fprintf(file, \"%lx 40 js:one\\n%lx 40 js:\\033two\\n\", (long)at, (long)at + "
	"0x40); fflush(file);\n"
	"	if (write(1, &n, 8) != 8 || write(1, &at, 8) != 8) return 1;\n"
	"	if (read(0, &c, 1) < 0) return 1;\n"
	"	fprintf(file, \"%lx 40 js:three\\n\", (long)at); fclose(file);\n"
	"	if (write(1, &n, 8) != 8 || read(0, &c, 1) < 0) return 1;\n"
	"	return 0; }\n";

static void code_without_a_file_is_in_the_perf_map(void **state)
{
	char path[PATH_MAX], map[64];
	struct symbols_frame frame;
	struct symbols *symbols;
	struct program program;
	struct modules *modules;
	long again;

	(void)state;
	build(path, "jit", "gcc", "c", jit_source, "-O1");
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	assert_int_equal(symbols_resolve(symbols, modules, program.stack[0] + 8, NULL, &frame, 1),
			 1);
	assert_string_equal(frame.function, "js:one");
	assert_string_equal(frame.filename, "[anon]");
	assert_int_equal(
		symbols_resolve(symbols, modules, program.stack[0] + 0x41, NULL, &frame, 1), 1);
	assert_string_equal(frame.function, "js:\\x1btwo");
	assert_int_equal(
		symbols_resolve(symbols, modules, program.stack[0] + 0x81, NULL, &frame, 1), 1);
	assert_string_equal(frame.function, "[anon]");
	/* It goes on to be written. */
	assert_int_equal(write(program.in, "x", 1), 1);
	assert_int_equal(read(program.out, &again, sizeof(again)), sizeof(again));
	assert_int_equal(symbols_resolve(symbols, modules, program.stack[0] + 8, NULL, &frame, 1),
			 1);
	assert_string_equal(frame.function, "js:three");
	/* In nothing that was mapped. */
	assert_int_equal(symbols_resolve(symbols, modules, 1, NULL, &frame, 1), 0);
	assert_int_equal(symbols_resolve(symbols, modules, 0, NULL, &frame, 1), 0);
	snprintf(map, sizeof(map), "/tmp/perf-%d.map", program.pid);
	program_end(&program);
	unlink(map);
	modules_free(modules);
	symbols_free(symbols);
}

static void the_kernels_page_has_its_name(void **state)
{
	struct symbols *symbols;
	struct modules *modules;
	struct symbols_frame frame;
	int found = 0;

	(void)state;
	assert_int_equal(symbols_new(&symbols), 0);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	for (size_t i = 0; i < modules->count; i++) {
		if (strcmp(modules->entries[i].path, "[vdso]") != 0)
			continue;
		assert_int_equal(symbols_resolve(symbols, modules, modules->entries[i].start + 16,
						 NULL, &frame, 1),
				 1);
		assert_string_equal(frame.function, "[vdso]");
		found = 1;
	}
	assert_int_equal(found, 1);
	modules_free(modules);
	symbols_free(symbols);
}

/*
 * A name of some hundred bytes that stands for 2^60 times as many, and one of an honest function:
 * the first costs a worker, and is shown as it is.
 */
static void names_that_explode_are_left_alone(void **state)
{
	static const char format[] =
		"sed 's/void outer(int x) {/void outer(int x) __asm__(\"%s\");\\n&/' c-bomb-in.c "
		">c-bomb.c && gcc -O2 -rdynamic -o bomb c-bomb.c";
	char name[1024] = "_Z1fPFviiE", path[PATH_MAX], names[8192];
	struct symbols_stats stats;
	struct symbols *symbols;

	(void)state;
	need("gcc");
	for (int level = 0; level < 60; level++) {
		/*
		 * The pointer to the function type before: S_ is the function, S0_ its pointer, and
		 * so on.
		 */
		static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
		int number = 2 * level;
		char base[8];

		snprintf(base, sizeof(base), number < 36 ? "S%c_" : "S%c%c_",
			 number < 36 ? digits[number] : digits[number / 36], digits[number % 36]);
		sprintf(name + strlen(name), "PFv%s%sE", base, base);
	}
	in_folder(path, "c-bomb-in.c");
	text_write(path, c_source);
	assert_true(snprintf(names, sizeof(names), format, name) < (int)sizeof(names));
	assert_int_equal(run("cd %s && %s", folder, names), 0);

	assert_int_equal(symbols_new(&symbols), 0);
	names_of(symbols, in_folder(path, "bomb"), names, sizeof(names));
	assert_int_equal(strncmp(names, "tell _Z1fPFviiEPFv", 18), 0);
	symbols_stats(symbols, &stats);
	assert_int_equal(stats.names_given_up, 1);
	/* Others are demangled still. */
	build(path, "after", "g++", "cc", cxx_source, "-O2");
	names_of(symbols, path, names, sizeof(names));
	assert_non_null(strstr(names, "shop::Basket<int>::add(std::map<"));
	symbols_free(symbols);
}

/*
 * DWARF that was damaged: whatever is made of it, the process lives, and other files have their
 * names.
 */
static void damaged_dwarf_does_no_harm(void **state)
{
	static const char *const sections[] = {".debug_info", ".debug_abbrev", ".debug_line",
					       ".debug_rnglists"};
	char path[PATH_MAX], names[8192];
	struct symbols *symbols;

	(void)state;
	need("objcopy");
	build(path, "whole", "gcc", "c", c_source, "-O2 -g");
	assert_int_equal(symbols_new(&symbols), 0);
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		for (int seed = 1; seed < 8; seed++) {
			assert_int_equal(
				run("cd %s && objcopy -O binary --only-section=%s "
				    "--set-section-flags %s=alloc whole part &&"
				    " awk -v seed=%d 'BEGIN { srand(seed); for (i = 0; i < 4000; "
				    "i++) printf \"%%c\", 1 + int(rand() * 126) }' >noise &&"
				    " dd if=noise of=part bs=1 seek=$((seed * 40)) count=200 "
				    "conv=notrunc status=none &&"
				    " objcopy --update-section %s=part whole damaged",
				    folder, sections[i], sections[i], seed, sections[i]),
				0);
			names_of(symbols, in_folder(path, "damaged"), names, sizeof(names));
			assert_non_null(strstr(names, "main"));
		}
	}
	names_of(symbols, in_folder(path, "whole"), names, sizeof(names));
	assert_string_equal(names, all_names);
	symbols_free(symbols);
}

/*
 * The worker takes some tenths of a second for each address in main(): it goes through a million
 * blocks that do not hold it.
 */
static const char slow_dwarf[] =
	".section .note.GNU-stack,\"\",@progbits\n"
	".section .debug_abbrev,\"\",@progbits\n"
	".uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; "
	".uleb128 3; .uleb128 8; .byte 0,0\n"
	".uleb128 2; .uleb128 0x2e; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; "
	".uleb128 3; .uleb128 8; .byte 0,0\n"
	".uleb128 3; .uleb128 0x0b; .byte 0; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 6; "
	".byte 0,0\n"
	".byte 0\n"
	".section .debug_info,\"\",@progbits\n"
	".long .Lend - .Lbegin\n"
	".Lbegin: .short 4; .long 0; .byte 8\n"
	".uleb128 1; .quad main; .quad 4096; .asciz \"slow.c\"\n"
	".uleb128 2; .quad main; .quad 4096; .asciz \"slowly\"\n"
	".rept 1000\n"
	".incbin \"blocks\"\n"
	".endr\n"
	".byte 0,0\n"
	".Lend:\n";

static void slow_program_build(char path[PATH_MAX])
{
	static const unsigned char block[] = {3, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0};
	char file[PATH_MAX];
	FILE *blocks = fopen(in_folder(file, "blocks"), "we");

	assert_non_null(blocks);
	for (int i = 0; i < 3000; i++)
		assert_int_equal(fwrite(block, sizeof(block), 1, blocks), 1);
	fclose(blocks);
	text_write(in_folder(file, "dwarf.s"), slow_dwarf);
	text_write(in_folder(file, "slow.c"),
		   PROGRAM_TELL "int main(void) { tell(); __asm__ volatile(\"\"); return 0; }\n");
	assert_int_equal(run("cd %s && gcc -O1 -o slow slow.c dwarf.s", folder), 0);
	in_folder(path, "slow");
}

static uint64_t soon_ns(uint64_t after_ns)
{
	return clock_ns(CLOCK_MONOTONIC) + after_ns;
}

/*
 * Who cannot wait for DWARF that is slow to read has the symbol, and what was asked about before;
 * the answer comes later.
 */
static void nobody_has_to_wait(void **state)
{
	struct symbols_ask ask = {0};
	const struct module *module;
	struct symbols_frame frames[2];
	struct symbols *symbols;
	struct modules *modules;
	struct program program;
	char path[PATH_MAX];
	uint64_t address;
	int count;

	(void)state;
	need("gcc");
	slow_program_build(path);
	assert_int_equal(symbols_new(&symbols), 0);
	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	address = program.stack[1];
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), -EAGAIN);
	ask.until_ns = soon_ns(1);
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), -EAGAIN);
	ask.until_ns = soon_ns(1000000);
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), -EAGAIN);
	assert_int_equal(symbols_resolve_plain(symbols, modules, address, frames), 1);
	assert_string_equal(frames[0].function, "main");
	/* The worker is at the first one still, and answers both. */
	assert_int_equal(symbols_resolve(symbols, modules, address + 1, NULL, frames, 2), 1);
	assert_string_equal(frames[0].function, "slowly");
	ask.until_ns = 0;
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), 1);
	assert_string_equal(frames[0].function, "slowly");

	/*
	 * A process whose files have cost its share is asked for nothing more; what is known is
	 * known to it, too.
	 */
	ask.until_ns = UINT64_MAX;
	assert_int_equal(symbols_share_new(&ask.share, 50000000), 0);
	for (uint64_t i = 2; (count = symbols_prepare(symbols, modules, address + i, &ask)) == 0;
	     i++)
		assert_true(i < 1000);
	assert_int_equal(count, -ETIME);
	assert_int_equal(symbols_resolve(symbols, modules, address + 1000, &ask, frames, 2),
			 -ETIME);
	assert_int_equal(symbols_resolve(symbols, modules, address, &ask, frames, 2), 1);
	symbols_share_free(ask.share);
	/* Not a symbol was read by this process. */
	module = modules_find(modules, address);
	assert_non_null(module);
	assert_int_equal(elf_file_symbol_memory(module->file->elf), 0);
	program_end(&program);
	modules_free(modules);
	symbols_free(symbols);
}

/*
 * Who maps files without end, or writes a map without end, leaves the others of the session their
 * memory.
 */
static void names_have_a_share(void **state)
{
	enum { LIMIT = 4 << 20, PLACES = 8000, NAMES = 100000 };
	struct account session = {.limit = LIMIT};
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	struct jit_map *list = NULL, *map;
	struct modules *modules;
	struct symbols *symbols;
	uint64_t address = (uintptr_t)printf;
	char path[64];
	FILE *text;

	(void)state;
	assert_int_equal(symbols_new_in(&symbols, &session), 0);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	for (uint64_t i = 0; i < PLACES; i++)
		assert_true(symbols_resolve(symbols, modules, address + i, NULL, frames,
					    SYMBOLS_FRAMES_MAX) > 0);
	assert_true(session.used > 0 && session.used <= LIMIT / 8);
	modules_free(modules);
	symbols_free(symbols);
	assert_int_equal(session.used, 0);

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	text = fopen(path, "we");
	assert_non_null(text);
	for (int i = 0; i < NAMES; i++)
		fprintf(text,
			"%x 10 a function whose name is long enough to take much memory, number "
			"%d\n",
			0x10000 + i * 16, i);
	fclose(text);
	assert_int_equal(jit_map_get(&list, &map, getpid(), &session), 0);
	unlink(path);
	for (int i = 0; i < 10; i++)
		jit_map_find(map, 0x10000);
	assert_string_equal(jit_map_find(map, 0x10000),
			    "a function whose name is long enough to take much memory, number 0");
	assert_true(session.refused > 0);
	assert_true(account_left(&session) >= LIMIT / 5 - LIMIT / 64);
	jit_map_put(&list, map);
	assert_int_equal(session.used, 0);
}

/*
 * What libdw has read it keeps: a worker that has too much of it ends, and the next one knows the
 * same.
 */
static void a_worker_that_holds_much_begins_anew(void **state)
{
	enum { LIMIT = 1 << 20, PLACES = 1 << 20 };
	struct account session = {.limit = LIMIT};
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	const uint64_t address = (uintptr_t)names_have_a_share;
	struct symbols_stats stats = {0};
	struct modules *modules;
	struct symbols *symbols;

	(void)state;
	alarm(120);
	assert_int_equal(symbols_new_in(&symbols, &session), 0);
	assert_int_equal(modules_new(&modules, symbols, getpid()), 0);
	for (uint64_t i = 0; stats.worker_starts < 3; i = (i + 1) % PLACES) {
		symbols_resolve(symbols, modules, address + i, NULL, frames, SYMBOLS_FRAMES_MAX);
		symbols_stats(symbols, &stats);
	}
	assert_int_equal(stats.dwarf_given_up, 0);
	assert_int_equal(
		symbols_resolve(symbols, modules, address - 1 + sizeof(int), NULL, frames, 1), 1);
	assert_string_equal(frames[0].function, "names_have_a_share");
	alarm(0);
	modules_free(modules);
	symbols_free(symbols);
}

static int folder_make(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/tracer-symbols-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
	(void)state;
	return run("rm -rf %s", folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(c_is_as_addr2line_has_it),
		cmocka_unit_test(clang_is_as_addr2line_has_it),
		cmocka_unit_test(cxx_is_as_addr2line_has_it),
		cmocka_unit_test(rust_is_as_addr2line_has_it),
		cmocka_unit_test(without_dwarf_symbols_name_what_they_cover),
		cmocka_unit_test(debug_files_that_were_fetched_are_found),
		cmocka_unit_test(debug_files_of_another_root_are_found),
		cmocka_unit_test(what_dwz_has_moved_is_found),
		cmocka_unit_test(ended_processes_keep_their_names),
		cmocka_unit_test(told_of_maps_they_name_what_has_ended),
		cmocka_unit_test(deleted_files_keep_their_names),
		cmocka_unit_test(processes_share_files),
		cmocka_unit_test(few_descriptors_are_enough),
		cmocka_unit_test(code_without_a_file_is_in_the_perf_map),
		cmocka_unit_test(the_kernels_page_has_its_name),
		cmocka_unit_test(names_that_explode_are_left_alone),
		cmocka_unit_test(damaged_dwarf_does_no_harm),
		cmocka_unit_test(nobody_has_to_wait),
		cmocka_unit_test(names_have_a_share),
		cmocka_unit_test(a_worker_that_holds_much_begins_anew),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of programs whose native symbols are tested, built in a temporary folder. */
#pragma once

#include "object/symbols/files.h"
#include "object/symbols/symbols.h"
#include "programs.h"

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

static inline char *in_folder(char path[PATH_MAX], const char *name)
{
	assert_true(snprintf(path, PATH_MAX, "%.3000s/%s", folder, name) < PATH_MAX);
	return path;
}

/* Writes the source and compiles it; path is the program's. */
static inline void build(char path[PATH_MAX], const char *name, const char *compiler,
			 const char *suffix, const char *source, const char *flags)
{
	char file[PATH_MAX + 8];

	need(compiler);
	in_folder(path, name);
	snprintf(file, sizeof(file), "%s.%s", path, suffix);
	text_write(file, source);
	assert_int_equal(run("cd %s && %s %s -o %s %s", folder, compiler, flags, name, file), 0);
}

/* The stack of a program as "name name name", innermost first, up to main. */
static inline void stack_names(struct symbols *symbols, const struct modules *modules,
			       const struct program *program, char *out, size_t capacity)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; i < program->depth; i++) {
		int count = symbols_resolve(symbols, modules, program->stack[i], NULL, frames,
					    SYMBOLS_FRAMES_MAX);

		assert_true(count > 0);
		for (int k = 0; k < count && used < capacity; k++) {
			used += (size_t)snprintf(out + used, capacity - used, "%s%s",
						 used ? " " : "", frames[k].function);
			if (!strcmp(frames[k].function, "main"))
				return;
		}
	}
}

static inline void names_of(struct symbols *symbols, const char *path, char *names, size_t capacity)
{
	struct program program;
	struct modules *modules;

	program_start(&program, path);
	assert_int_equal(modules_new(&modules, symbols, program.pid), 0);
	stack_names(symbols, modules, &program, names, capacity);
	program_end(&program);
	modules_free(modules);
}

static const char all_names[] = "tell innermost middle outer hidden main";

static inline int folder_make(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/tracer-symbols-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static inline int folder_remove(void **state)
{
	(void)state;
	return run("rm -rf %s", folder);
}

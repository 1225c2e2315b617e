/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorted arrays are used rather than hash tables: whatever names and addresses a file contains,
 * building an index takes n log n and a look-up log n.
 */
#include "object/elf/elf_symbols.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "object/elf/elf_section.h"
#include "util/error.h"
#include "util/sorted.h"

/* bytes of a name: names may overlap in the string table, each as long as the whole table */
#define HASHED_BYTES    256u
#define UNDERSCORES_MAX 7u      /* leading underscores that are compared */
#define VERSION_HIDDEN  0x8000u /* in .gnu.version: not the default version of this name */
#define DIGIT_BITS      8u
#define HASH_SHIFT      32u /* of the hash in a key */

int elf_symbols_load(struct elf_symbols *table, Elf *elf, uint32_t type, uint32_t max)
{
	GElf_Shdr header, versions_header;
	Elf_Scn *section = elf_section_by_type(elf, type, NULL, &header);

	if (!section || header.sh_type == SHT_NOBITS || !header.sh_size)
		return -ENOENT;
	/* Checked before anything is read, since reading costs time too. */
	if (header.sh_size / sizeof(Elf64_Sym) > max)
		return error_set(-ENOEXEC, "more than %u symbols are too many to search here", max);
	if (header.sh_entsize != sizeof(Elf64_Sym))
		return error_set(-ENOEXEC, "corrupt ELF file: symbols of %llu bytes",
				 (unsigned long long)header.sh_entsize);
	int err = elf_section_strings(elf, header.sh_link, &table->strings, &table->string_bytes);
	if (err)
		return err;
	table->symbols = elf_section_data(section, &header);
	if (!table->symbols)
		return -ENOEXEC;
	table->count = (uint32_t)(table->symbols->d_size / sizeof(Elf64_Sym));
	if (type == SHT_DYNSYM) {
		Elf_Scn *versions =
			elf_section_by_type(elf, SHT_GNU_versym, NULL, &versions_header);
		if (versions)
			table->versions = elf_section_data(versions, &versions_header);
	}
	return 0;
}

void elf_symbols_free(struct elf_symbols *table)
{
	free(table->by_name);
	spans_free(&table->by_address);
	*table = (struct elf_symbols){0};
}

static bool is_function(const GElf_Sym *symbol)
{
	unsigned type = GELF_ST_TYPE(symbol->st_info);

	return type == STT_FUNC || type == STT_GNU_IFUNC;
}

/* Reads symbol number index and returns its name; NULL: it cannot be looked up. */
static const char *read_symbol(const struct elf_symbols *table, uint32_t index, GElf_Sym *symbol)
{
	if (!gelf_getsym(table->symbols, (int)index, symbol))
		return NULL;
	unsigned type = GELF_ST_TYPE(symbol->st_info);
	if (symbol->st_shndx == SHN_UNDEF || symbol->st_name >= table->string_bytes ||
	    type == STT_SECTION || type == STT_FILE || !table->strings[symbol->st_name])
		return NULL;
	return table->strings + symbol->st_name;
}

/* FNV-1a */
static uint32_t hash_name(const char *name)
{
	uint32_t hash = 2166136261u;

	for (unsigned i = 0; i < HASHED_BYTES && name[i]; i++)
		hash = (hash ^ (unsigned char)name[i]) * 16777619u;
	return hash;
}

uint64_t elf_symbols_key(const char *name, uint32_t index)
{
	return (uint64_t)hash_name(name) << HASH_SHIFT | index;
}

static void digit_sort(const uint64_t *from, uint64_t *to, size_t count, unsigned shift)
{
	size_t at[1u << DIGIT_BITS] = {0}, sum = 0;

	for (size_t i = 0; i < count; i++)
		at[from[i] >> shift & ((1u << DIGIT_BITS) - 1)]++;
	for (size_t i = 0; i < 1u << DIGIT_BITS; i++) {
		size_t begins = sum;

		sum += at[i];
		at[i] = begins;
	}
	for (size_t i = 0; i < count; i++)
		to[at[from[i] >> shift & ((1u << DIGIT_BITS) - 1)]++] = from[i];
}

/*
 * A radix sort, since a target chooses the number of keys. The indexes ascend already, and each
 * pass is stable.
 */
int elf_symbols_sort_keys(uint64_t *keys, size_t count)
{
	uint64_t *other = malloc((count + 1) * sizeof(*other));

	if (!other)
		return -ENOMEM;
	for (unsigned shift = HASH_SHIFT; shift < 64; shift += 2 * DIGIT_BITS) {
		digit_sort(keys, other, count, shift);
		digit_sort(other, keys, count, shift + DIGIT_BITS);
	}
	free(other);
	return 0;
}

void elf_symbols_find_keys(const uint64_t *keys, size_t count, const char *name, size_t *from,
			   size_t *to)
{
	uint64_t first = elf_symbols_key(name, 0);
	size_t low = keys_from(keys, count, first), end;

	for (end = low; end < count && end - low < ELF_NAMESAKES_MAX; end++)
		if (keys[end] >> HASH_SHIFT != first >> HASH_SHIFT)
			break;
	*from = low;
	*to = end;
}

static int index_names(struct elf_symbols *table)
{
	if (table->by_name)
		return 0;
	table->by_name = malloc((table->count + 1ul) * sizeof(*table->by_name));
	if (!table->by_name)
		return -ENOMEM;
	for (uint32_t i = 0; i < table->count; i++) {
		GElf_Sym symbol;
		const char *name = read_symbol(table, i, &symbol);

		if (name)
			table->by_name[table->name_count++] = elf_symbols_key(name, i);
	}
	if (!elf_symbols_sort_keys(table->by_name, table->name_count))
		return 0;
	free(table->by_name);
	table->by_name = NULL;
	table->name_count = 0;
	return -ENOMEM;
}

/* Whether a linker would bind the unversioned name to this symbol. */
static bool is_preferred(const struct elf_symbols *table, uint32_t index, const GElf_Sym *symbol)
{
	GElf_Versym version;

	if (GELF_ST_BIND(symbol->st_info) == STB_LOCAL)
		return 0;
	return !table->versions || !gelf_getversym(table->versions, (int)index, &version) ||
	       !(version & VERSION_HIDDEN);
}

int elf_symbols_find(struct elf_symbols *table, const char *name, GElf_Sym *symbol,
		     const char **found)
{
	size_t at, end;
	int err = index_names(table);

	if (err)
		return err;
	elf_symbols_find_keys(table->by_name, table->name_count, name, &at, &end);
	err = -ENOENT;
	for (; at < end; at++) {
		uint32_t index = (uint32_t)table->by_name[at];
		GElf_Sym candidate;
		const char *text = read_symbol(table, index, &candidate);

		if (!text || strcmp(text, name))
			continue;
		int preferred = is_preferred(table, index, &candidate);
		if (err || preferred) {
			*symbol = candidate;
			*found = text;
			err = 0;
		}
		if (preferred)
			break;
	}
	return err;
}

static uint32_t alias_rank(const GElf_Sym *symbol, const char *name)
{
	uint32_t underscores = 0;

	while (underscores < UNDERSCORES_MAX && name[underscores] == '_')
		underscores++;
	return (GELF_ST_BIND(symbol->st_info) != STB_LOCAL ? UNDERSCORES_MAX + 1 : 0) +
	       UNDERSCORES_MAX - underscores;
}

/* A function without a size is found only at its start. */
static int address_add(struct elf_symbols *table, uint32_t index)
{
	GElf_Sym symbol;
	const char *name = read_symbol(table, index, &symbol);

	if (!name || !is_function(&symbol))
		return 0;
	uint64_t bytes = symbol.st_size ? symbol.st_size : 1;
	if (bytes > UINT64_MAX - symbol.st_value)
		return 0;
	return spans_add(&table->by_address,
			 &(struct address_span){.start = symbol.st_value,
						.end = symbol.st_value + bytes,
						.value = index,
						.rank = alias_rank(&symbol, name)});
}

static int index_addresses(struct elf_symbols *table)
{
	int err = 0;

	if (table->has_addresses)
		return 0;
	for (uint32_t i = 0; i < table->count && !err; i++)
		err = address_add(table, i);
	err = err ?: spans_sort(&table->by_address);
	if (err)
		spans_free(&table->by_address);
	table->has_addresses = !err;
	return err;
}

int elf_symbols_find_at(struct elf_symbols *table, uint64_t vaddr, GElf_Sym *symbol,
			const char **found)
{
	int err = index_addresses(table);

	if (err)
		return err;
	const struct address_span *span = spans_find(&table->by_address, vaddr);
	*found = span ? read_symbol(table, (uint32_t)span->value, symbol) : NULL;
	return *found ? 0 : -ENOENT;
}

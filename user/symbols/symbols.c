/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/symbols.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"
#include "base/text.h"
#include "symbols/ask.h"
#include "symbols/symbols_state.h"

int symbols_new(struct symbols **out)
{
	return symbols_new_in(out, NULL);
}

int symbols_new_in(struct symbols **out, struct account *account)
{
	struct symbols *symbols = calloc(1, sizeof(*symbols));
	int err;

	if (!symbols)
		return -ENOMEM;
	symbols->account = symbols->memo.account = account;
	err = worker_new(&symbols->worker);
	if (!err)
		err = files_new(&symbols->files);
	if (!err)
		err = strings_new_in(&symbols->strings, account);
	if (err)
		symbols_free(symbols);
	else
		*out = symbols;
	return err;
}

void symbols_free(struct symbols *symbols)
{
	if (!symbols)
		return;
	worker_free(symbols->worker);
	files_free(symbols->files);
	strings_free(symbols->strings);
	memo_free(&symbols->memo);
	free(symbols);
}

/* All names, and the places that have them. 0; without memory nothing has changed. */
static int names_forget(struct symbols *symbols)
{
	struct strings *strings;
	int err = strings_new_in(&strings, symbols->account);

	if (err)
		return err;
	strings_free(symbols->strings);
	symbols->strings = strings;
	memo_free(&symbols->memo);
	return 0;
}

/* As it may be shown. 0, -ENOMEM, -EDQUOT. */
static int text_keep(struct symbols *symbols, const char *text, const char **out)
{
	char shown[SYMBOLS_TEXT_MAX];
	size_t bytes = text_escape(shown, sizeof(shown), text);
	uint32_t id;
	int err = strings_intern(symbols->strings, shown, bytes, &id);

	if (!err)
		*out = strings_get(symbols->strings, id);
	return err;
}

/* "[libfoo.so+0x1234]" */
static int place_keep(struct symbols *symbols, const struct module *module, uint64_t offset, const char **out)
{
	const char *slash = strrchr(module->path, '/');
	char text[SYMBOLS_TEXT_MAX];

	snprintf(text, sizeof(text), "[%.512s+0x%" PRIx64 "]", slash ? slash + 1 : module->path, offset);
	return text_keep(symbols, text, out);
}

/* The name of the symbol that covers the address, without its version. "" when there is none. */
static void symbol_name(struct file *file, uint64_t vaddr, char out[WORKER_NAME_MAX])
{
	struct elf_symbol symbol;

	out[0] = '\0';
	if (!elf_file_symbol_at(file->elf, vaddr, &symbol) &&
	    snprintf(out, WORKER_NAME_MAX, "%s", symbol.name) < (int)WORKER_NAME_MAX)
		out[strcspn(out, "@")] = '\0';
}

/* Asks for a place in an ELF file, and keeps the answer. */
static int place_resolve(struct symbols *symbols, const struct module *module, uint64_t offset)
{
	struct worker_frame found[WORKER_FRAMES_MAX];
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	char symbol[WORKER_NAME_MAX] = "";
	uint64_t vaddr;
	int count = 0, err = 0;

	if (!elf_file_vaddr(module->file->elf, offset, &vaddr)) {
		symbol_name(module->file, vaddr, symbol);
		count = ask_frames(symbols, module->file, vaddr, symbol, found);
	}
	if (!count) {
		found[0] = (struct worker_frame){.function = symbol, .filename = ""};
		count = 1;
	}
	symbols->stats.addresses++;
	symbols->stats.unnamed += !found[count - 1].function[0];
	for (int i = 0; !err && i < count; i++) {
		frames[i] = (struct symbols_frame){.line = found[i].line, .inlined = i < count - 1};
		err = found[i].function[0] ? text_keep(symbols, found[i].function, &frames[i].function)
					   : place_keep(symbols, module, offset, &frames[i].function);
		if (!err)
			err = text_keep(symbols, found[i].filename[0] ? found[i].filename : module->path,
					&frames[i].filename);
	}
	return err ? err : memo_add(&symbols->memo, module->file->number, offset, frames, (uint32_t)count);
}

/* Code that is in no file, or in none that can be read. */
static int elsewhere_resolve(struct symbols *symbols, const struct modules *modules,
			     const struct module *module, uint64_t address, struct symbols_frame *frame)
{
	const char *name = modules->jit ? jit_map_find(modules->jit, address) : NULL;
	int err;

	*frame = (struct symbols_frame){0};
	if (name && name[0])
		err = text_keep(symbols, name, &frame->function);
	else if (module->inode)
		err = place_keep(symbols, module, address - module->start + module->offset, &frame->function);
	else
		err = text_keep(symbols, module->path, &frame->function);
	if (!err)
		err = text_keep(symbols, module->path, &frame->filename);
	return err ? err : 1;
}

static int address_resolve(struct symbols *symbols, const struct modules *modules, uint64_t address,
			   struct symbols_frame frames[], size_t room)
{
	const struct module *module = modules_find(modules, --address);
	const struct symbols_frame *known;
	uint32_t count;
	uint64_t offset;
	int err;

	if (!module || !room)
		return 0;
	if (!module->file || file_read(module->file))
		return elsewhere_resolve(symbols, modules, module, address, &frames[0]);
	offset = address - module->start + module->offset;
	count = memo_find(&symbols->memo, module->file->number, offset, &known);
	if (!count) {
		err = place_resolve(symbols, module, offset);
		if (err)
			return err;
		count = memo_find(&symbols->memo, module->file->number, offset, &known);
	}
	if (count > room) {
		symbols->stats.cut++;
		count = (uint32_t)room;
	}
	memcpy(frames, known, count * sizeof(*frames));
	return (int)count;
}

int symbols_resolve(struct symbols *symbols, const struct modules *modules, uint64_t address,
		    struct symbols_frame frames[], size_t room)
{
	int count = address_resolve(symbols, modules, address, frames, room);

	if (!account_is_full(count) || names_forget(symbols))
		return count;
	return address_resolve(symbols, modules, address, frames, room);
}

pid_t symbols_worker(const struct symbols *symbols)
{
	return worker_pid(symbols->worker);
}

void symbols_stats(const struct symbols *symbols, struct symbols_stats *out)
{
	*out = symbols->stats;
	out->files = files_count(symbols->files);
}

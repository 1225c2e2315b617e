/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/malloc/plan_provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "object/elf/elf_file.h"
#include "object/elf/elf_usdt.h"
#include "object/insn/frame.h"
#include "object/insn/machine.h"
#include "probe/malloc/usdt_arguments.h"
#include "probe/python/plan_symbol.h"
#include "util/array.h"
#include "util/error.h"

#define MISSING_MAX 16 /* probes of a file that are listed as not understood */

struct provider_planner {
	struct elf_file *file;
	struct inline_decoder decoder;
	uint64_t library, library_end; /* the code of an allocator's library; 0, 0: it is none */
	struct plan plan;
	size_t allocs, frees;
	int refused; /* an alloc or a free cannot be probed */
};

/* usdt_symbols.find */
static int variable_find(void *context, const char *name, uint64_t *vaddr)
{
	struct elf_symbol symbol;
	int err = elf_file_symbol(context, name, &symbol);

	if (err || symbol.tls || symbol.function)
		return -ENOENT;
	*vaddr = symbol.vaddr;
	return 0;
}

static uint32_t within_32(uint64_t bytes)
{
	return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
}

/* Of functions with more code before the probe nothing is known. */
static void frame_find(struct provider_planner *planner, uint64_t vaddr, uint64_t entry,
		       struct abi_usdt *usdt)
{
	uint8_t code[FRAME_CODE];
	size_t count = (size_t)(vaddr - entry);

	if (count <= sizeof(code) && elf_file_read(planner->file, entry, code, count) == (int)count)
		machine_frame_find(&planner->decoder, code, count, entry, &usdt->frame);
}

/* The producer's own code around the probe. */
static void code_find(struct provider_planner *planner, uint64_t vaddr, struct abi_usdt *usdt)
{
	struct elf_symbol function;
	int is_named = !elf_file_symbol_at(planner->file, vaddr, &function) &&
		       vaddr - function.vaddr < function.size;

	if (vaddr >= planner->library && vaddr < planner->library_end) {
		usdt->before = within_32(vaddr - planner->library);
		usdt->behind = within_32(planner->library_end - vaddr);
	} else if (is_named) {
		usdt->before = within_32(vaddr - function.vaddr);
		usdt->behind = within_32(function.vaddr + function.size - vaddr);
	}
	if (is_named)
		frame_find(planner, vaddr, function.vaddr, usdt);
}

/* Why the probe cannot be placed; NULL: it can, and *site is complete. */
static const char *site_fill(struct provider_planner *planner, const struct elf_usdt *probe,
			     int is_alloc, struct plan_site *site)
{
	const struct usdt_symbols symbols = {variable_find, planner->file, probe->vaddr};
	const struct machine *machine = planner->decoder.machine;
	uint8_t code[sizeof(machine->nop)];

	if (elf_file_read(planner->file, probe->vaddr, code, machine->insn_step) !=
		    machine->insn_step ||
	    memcmp(code, machine->nop, machine->insn_step) != 0)
		return "it is not on a nop";
	if (elf_file_offset(planner->file, probe->vaddr, &site->offset))
		return "its address is not in the file";
	/* The kernel counts in 16 bits, which must not cross a page. */
	if (probe->semaphore &&
	    (probe->semaphore & 1 ||
	     elf_file_offset(planner->file, probe->semaphore, &site->semaphore)))
		return "its semaphore is not in the file";
	if (usdt_arguments_parse(machine, probe->arguments, is_alloc ? 3 : 1, &symbols,
				 &site->usdt))
		return error_reason(-EINVAL);
	site->vaddr = probe->vaddr;
	site->op = is_alloc ? ABI_OP_SAMPLED_ALLOC : ABI_OP_SAMPLED_FREE;
	site->cookie = ABI_COOKIE(site->op, EVENT_API_NATIVE, 0, 0, 0);
	site->emulated = machine->is_emulated(code, machine->insn_step);
	code_find(planner, probe->vaddr, &site->usdt);
	return NULL;
}

static void missing_add(struct provider_planner *planner, const char *symbol, const char *why)
{
	struct plan *plan = &planner->plan;

	for (size_t i = 0; i < plan->missing_count; i++)
		if (!strncmp(plan->missing[i].symbol, symbol, PLAN_NAME_SIZE - 1))
			return;
	if (plan->missing_count < MISSING_MAX)
		plan_missing_add(plan, symbol, why);
}

static int site_add(struct plan *plan, const struct elf_usdt *probe, struct plan_site *site)
{
	int err = ARRAY_GROW(plan->sites, plan->capacity, plan->count);

	if (err)
		return err;
	snprintf(site->instruction, sizeof(site->instruction), "nop");
	snprintf(site->why, sizeof(site->why), "USDT probe \"%.64s\"%s", probe->arguments,
		 site->semaphore ? ", with a semaphore" : "");
	plan->sites[plan->count++] = *site;
	return 0;
}

/* elf_usdt_fn */
static int probe_take(void *context, const struct elf_usdt *probe)
{
	struct provider_planner *planner = context;
	struct plan *plan = &planner->plan;
	int is_alloc = !strcmp(probe->name, "alloc");
	struct plan_site site = {0};

	if (strcmp(probe->provider, PLAN_PROVIDER))
		return 0;
	snprintf(site.symbol, sizeof(site.symbol), PLAN_PROVIDER ":%.*s",
		 (int)(sizeof(site.symbol) - sizeof(PLAN_PROVIDER) - 1), probe->name);
	if (!is_alloc && strcmp(probe->name, "free")) {
		missing_add(planner, site.symbol, "this probe is not understood");
		return 0;
	}
	const char *why = site_fill(planner, probe, is_alloc, &site);
	if (!why && plan->count == PLAN_PROVIDER_SITES)
		why = "the file has too many of them";
	if (why) {
		missing_add(planner, site.symbol, why);
		planner->refused = 1;
		return 0;
	}
	*(is_alloc ? &planner->allocs : &planner->frees) += 1;
	return site_add(plan, probe, &site);
}

/* An allocator's library, such as one that LD_PRELOAD names: all of its code is the producer's. */
static void library_find(struct provider_planner *planner)
{
	struct elf_symbol symbol;
	uint64_t bytes;

	if (elf_file_is_executable(planner->file) ||
	    elf_file_symbol(planner->file, "malloc", &symbol) || !symbol.function ||
	    elf_file_section(planner->file, ".text", &planner->library, &bytes))
		return;
	planner->library_end = planner->library + bytes;
}

static void provider_take(struct provider_planner *planner, struct plan *plan)
{
	planner->plan.self_sampled = 1;
	planner->plan.mode = EVENT_MODE_EXACT;
	snprintf(planner->plan.level, sizeof(planner->plan.level),
		 "the process samples itself: %zu probes of the provider " PLAN_PROVIDER,
		 planner->plan.count);
	*plan = planner->plan;
}

int plan_provider(struct elf_file *file, struct plan *plan)
{
	struct provider_planner planner = {.file = file};
	int err = inline_decoder_open(&planner.decoder, machine_own());

	if (err)
		return err;
	library_find(&planner);
	err = elf_file_usdt(file, probe_take, &planner);
	inline_decoder_close(&planner.decoder);
	if (err == -ENOMEM)
		goto out;
	if (err) {
		missing_add(&planner, PLAN_PROVIDER, error_reason(err));
		planner.refused = 1;
		err = 0;
	}
	if (planner.allocs && planner.frees && !planner.refused) {
		provider_take(&planner, plan);
		return 0;
	}
	if (planner.allocs && !planner.refused)
		missing_add(&planner, PLAN_PROVIDER ":alloc", "the file has no probe free");
	/* A probe alone says nothing. */
	for (size_t i = 0; i < planner.plan.missing_count; i++)
		plan_missing_add(plan, planner.plan.missing[i].symbol, planner.plan.missing[i].why);
out:
	plan_free(&planner.plan);
	return err;
}

int plan_native_layer(struct elf_file *file, const struct plan_native_opts *opts, struct plan *out)
{
	struct plan provider = {0};
	int err = plan_provider(file, &provider);

	if (err)
		return err;
	if (provider.self_sampled) {
		*out = provider;
		return 0;
	}
	err = plan_native(file, opts, out);
	if (err == -ENOENT && provider.missing_count) {
		provider.mode = EVENT_MODE_EXACT;
		*out = provider;
		return 0;
	}
	for (size_t i = 0; i < provider.missing_count && !err; i++)
		plan_missing_add(out, provider.missing[i].symbol, provider.missing[i].why);
	plan_free(&provider);
	return err;
}

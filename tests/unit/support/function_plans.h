/* SPDX-License-Identifier: Apache-2.0 */
/* A function of a few instructions, and the probe site planned for it. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "probe/place/function_entry.h"
#include "probe/python/plan.h"

#define VADDR 0x16a580
#define NONE  ABI_REG_COUNT

static const struct probe_spec malloc_public = {
	"PyObject_Malloc", ABI_OP_MALLOC, EVENT_API_OBJ, {ABI_REG_DI, NONE, NONE}, 1};
static const struct probe_spec malloc_implementation = {
	"_PyObject_Malloc", ABI_OP_MALLOC, EVENT_API_OBJ, {ABI_REG_SI, NONE, NONE}, 1};
static const struct probe_spec calloc_implementation = {
	"_PyMem_RawCalloc", ABI_OP_CALLOC, EVENT_API_RAW, {ABI_REG_SI, ABI_REG_DX, NONE}, 1};
static const struct probe_spec free_public = {
	"PyObject_Free", ABI_OP_FREE, EVENT_API_OBJ, {ABI_REG_DI, NONE, NONE}, 0};
static const struct probe_spec free_implementation = {
	"_PyObject_Free", ABI_OP_FREE, EVENT_API_OBJ, {ABI_REG_SI, NONE, NONE}, 0};
static const struct probe_spec track = {"PyTraceMalloc_Track",
					ABI_OP_TRACK,
					EVENT_API_TRACK,
					{ABI_REG_DI, ABI_REG_SI, ABI_REG_DX},
					0};
static const struct probe_spec finalize = {
	"Py_FinalizeEx", ABI_OP_FINALIZE, 0, {NONE, NONE, NONE}, 0};

/* The bytes are copied to a block of exactly their size, so that ASan sees a read past the end. */
static inline struct plan_site plan(const struct probe_spec *spec, const void *code, size_t bytes)
{
	struct plan_site site;
	uint8_t *copy = malloc(bytes);

	assert_non_null(copy);
	memcpy(copy, code, bytes);
	memset(&site, 0xa5, sizeof(site));
	assert_int_equal(function_entry_site(&machine_x86, spec, copy, bytes, VADDR, &site), 0);
	free(copy);
	assert_int_equal(site.vaddr, VADDR + site.in_function);
	assert_int_equal(site.op, spec->op);
	assert_int_equal(site.with_return, spec->with_return);
	return site;
}

#define PLAN(spec, ...)                                                                            \
	plan(spec, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static inline void expect(const struct plan_site *site, const struct probe_spec *spec, uint32_t r0,
			  uint32_t r1, uint32_t r2)
{
	assert_int_equal(site->cookie, ABI_COOKIE(spec->op, spec->api, r0, r1, r2));
}

static inline void expect_emulated(const struct plan_site *site, uint32_t at,
				   const char *instruction, const char *why)
{
	assert_string_equal(site->why, why);
	assert_string_equal(site->instruction, instruction);
	assert_int_equal(site->in_function, at);
	assert_int_equal(site->emulated, 1);
}

static inline void expect_entry(const struct plan_site *site, const char *instruction,
				const char *why)
{
	assert_string_equal(site->why, why);
	assert_string_equal(site->instruction, instruction);
	assert_int_equal(site->in_function, 0);
	assert_int_equal(site->emulated, 0);
}

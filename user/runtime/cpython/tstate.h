/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the running thread's PyThreadState is kept (enum abi_tstate_source): the part of
 * python_runtime_find() that knows about thread-local storage.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpython/runtime.h"

/* How a function of CPython reads the thread-local variable that it returns. */
struct tstate_access {
	int64_t offset; /* from the fs base, or within the module's TLS block */
	/* 0: offset is from the fs base; else the GOT slot's distance from the function */
	int64_t slot;
	int indirect; /* 1: add the word after the slot to offset */
};

/*
 * Decodes the machine code of PyThreadState_GetUnchecked(): the forms that gcc and clang emit for
 * "return thread_local_variable;", in an executable and in a shared library. Pure. 0; -ENOENT: none
 * of them.
 */
int tstate_decode(const uint8_t *code, size_t bytes, struct tstate_access *out);

/*
 * Fills tstate_source, tstate_address and tls_module of runtime->target from the rest of *runtime.
 * musl: the process uses musl, whose TLS vector has another layout. If the location is uncertain,
 * ABI_TSTATE_MATCH is set, which log_debug() reports.
 */
void tstate_find(struct python_runtime *runtime, int musl);

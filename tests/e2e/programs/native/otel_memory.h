/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes as <sys/sdt.h> writes them: a nop, and a note that says where it is, where its
 * semaphore is, and in which operands its arguments are.
 */
#ifndef OTEL_MEMORY_H
#define OTEL_MEMORY_H

#define NOTE(provider, name, semaphore, arguments)                                                 \
	"990: nop\n"                                                                               \
	".pushsection .note.stapsdt,\"?\",\"note\"\n"                                              \
	".balign 4\n"                                                                              \
	".4byte 992f-991f, 994f-993f, 3\n"                                                         \
	"991: .asciz \"stapsdt\"\n"                                                                \
	"992: .balign 4\n"                                                                         \
	"993: .8byte 990b\n"                                                                       \
	".8byte _.stapsdt.base\n"                                                                  \
	".8byte " semaphore "\n"                                                                   \
	".asciz \"" provider "\"\n"                                                                \
	".asciz \"" name "\"\n"                                                                    \
	".asciz \"" arguments "\"\n"                                                               \
	"994: .balign 4\n"                                                                         \
	".popsection\n"                                                                            \
	".ifndef _.stapsdt.base\n"                                                                 \
	".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                    \
	".weak _.stapsdt.base\n"                                                                   \
	".hidden _.stapsdt.base\n"                                                                 \
	"_.stapsdt.base: .space 1\n"                                                               \
	".size _.stapsdt.base, 1\n"                                                                \
	".popsection\n"                                                                            \
	".endif\n"

#define SEMAPHORE(name)                                                                            \
	__extension__ volatile unsigned short otel_memory_##name##_semaphore                       \
		__attribute__((section(".probes"), visibility("hidden")))

/* The operands are where the compiler has the values: a register, memory or a constant. */
#define PROBE_ALLOC(address, bytes, weighted)                                                      \
	asm volatile(NOTE("otel_memory", "alloc", "otel_memory_alloc_semaphore", "8@%0 8@%1 8@%2") \
		     :                                                                             \
		     : "nor"(address), "nor"(bytes), "nor"(weighted)                               \
		     : "memory")
#define PROBE_FREE(address)                                                                        \
	asm volatile(NOTE("otel_memory", "free", "otel_memory_free_semaphore", "8@%0")             \
		     :                                                                             \
		     : "nor"(address)                                                              \
		     : "memory")
/* A probe that the tracer does not know. */
#define PROBE_MMAP(address, bytes)                                                                 \
	asm volatile(NOTE("otel_memory", "mmap", "0", "8@%0 8@%1") : : "nor"(address), "nor"(bytes))

#endif

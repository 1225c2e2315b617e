/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why the kernel has refused a program: its number says little, its verifier and libbpf say it in
 * words, of which one line matters among thousands.
 */
#ifndef TRACER_ATTACH_KERNEL_WORDS_H
#define TRACER_ATTACH_KERNEL_WORDS_H

#define KERNEL_WORDS_ROOM 120

/* Zero-initialise. */
struct kernel_words {
	char text[KERNEL_WORDS_ROOM]; /* "program: its reason"; "" nothing was said */
	int verifier;                 /* it is the verifier's: nothing that comes later says more */
};

/*
 * Takes in one message of libbpf's ("libbpf: …", of warning level), which may have a whole log of
 * the verifier's in it: of that the last line that is no statistics, else the first message. Pure.
 */
void kernel_words_take(struct kernel_words *words, const char *message);

/*
 * Is it a number for what a program is, so that the words are about its reason? Not so for rights,
 * memory, descriptors. Pure.
 */
int kernel_words_matter(int err);

/* Between these two, what libbpf says in this thread is taken in, and passed on. One at a time. */
void kernel_words_begin(struct kernel_words *words);
void kernel_words_end(void);

#endif

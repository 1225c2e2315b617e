/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reason why the kernel refused a program. The errno says little; the verifier and libbpf log
 * the reason as text, one relevant line among thousands.
 */
#pragma once

#define LOAD_LOG_SIZE 120

/* Zero-initialise. */
struct load_log {
	char text[LOAD_LOG_SIZE]; /* "program: reason"; "" if nothing was logged */
	int verifier;             /* text is the verifier's; later messages are ignored */
};

/*
 * Processes one libbpf message ("libbpf: …", of warning level), which may contain a verifier log.
 * Keeps the last line of the log that is not statistics, or else the first message. Pure.
 */
void load_log_take(struct load_log *out, const char *message);

/*
 * Is the error about the program itself, so that the text gives its reason? Not for errors of
 * rights, memory or descriptors. Pure.
 */
int load_log_explains(int err);

/*
 * Between these two calls, libbpf's messages in this thread are captured, and passed on. They
 * cannot be nested.
 */
void load_log_begin(struct load_log *out);
void load_log_end(void);

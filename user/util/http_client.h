/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP client, by libcurl. The library is loaded when a client is made: it brings thirty others,
 * which no other command is to load. A static build has none.
 *
 * A request never hangs: it has a limit of time for all of it, and of its answer's bytes. Only http
 * and https are spoken, and no redirect is followed, so that a token goes to the server that it is
 * for. Proxies are those of the environment (http_proxy, https_proxy, no_proxy).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buffer.h"

#define HTTP_TOKEN_SIZE 256u /* with NUL */

struct http_client;

struct http_request {
	const char *url;
	char *const *headers; /* "NAME: VALUE" */
	size_t header_count;
	const void *body; /* POST; NULL: GET */
	size_t body_bytes;
	const char *ca; /* a PEM file with the authorities that are trusted; NULL: the system's */
	unsigned int seconds; /* for all of it */
	size_t answer_max;    /* bytes of the answer's body that are kept */
};

/* Zero-initialise; http_answer_free(). A further request replaces the content. */
struct http_answer {
	unsigned int status;
	uint64_t retry_after; /* seconds, as the server asks for; 0: it does not */
	bool is_cut;          /* the body had more bytes than answer_max */
	struct buffer body;   /* with a NUL behind it, if there is one */
};

/* 0; -ELIBACC: libcurl is not here (error_set); -ENOMEM. */
int http_client_new(struct http_client **out);
void http_client_free(struct http_client *client); /* NULL is legal */
/* Of the library that is loaded for this question; NULL: there is none. */
const char *http_client_version(void);
/*
 * Reads a token, which is the first line of a file. 0; -EINVAL: it is empty, longer, or no text
 * (error_set); -errno.
 */
int http_token_read(const char *path, char out[HTTP_TOKEN_SIZE]);
/* An http or https URL with a host, and without a user, query or fragment? */
bool http_url_is_valid(const char *url);
/*
 * 0: there is an answer, whatever its status; -ETIMEDOUT; -EKEYREJECTED the server's certificate is
 * not valid; -EIO any other failure of the connection; -ENOMEM. All with error_set().
 */
int http_ask(struct http_client *client, const struct http_request *request,
	     struct http_answer *answer);
/* "status 503: " and the first line of the body that is not empty, cut to the capacity. */
void http_answer_text(const struct http_answer *answer, char *out, size_t capacity);
void http_answer_free(struct http_answer *answer);

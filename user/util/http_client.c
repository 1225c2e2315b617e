/* SPDX-License-Identifier: Apache-2.0 */
#include "util/http_client.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"

/* What is used of the library. */
#define FUNCTIONS(each)                                                                            \
	each(easy_init) each(easy_reset) each(easy_setopt) each(easy_perform) each(easy_getinfo)   \
		each(easy_cleanup) each(easy_strerror) each(slist_append) each(slist_free_all)     \
			each(version_info)
#define MEMBER(name) __typeof__(curl_##name) *name;
#define NAME(name)   "curl_" #name,

struct library {
	FUNCTIONS(MEMBER)
};

static const char *const function_names[] = {FUNCTIONS(NAME)};

struct http_client {
	const struct library *curl;
	CURL *easy;
	char why[CURL_ERROR_SIZE];
};

/* Debian's with GnuTLS, and other distributions' */
static const char *const library_names[] = {"libcurl-gnutls.so.4", "libcurl.so.4"};

/* dlopen(), or NULL: a static build has none, since a library would bring a libc of its own. */
static void *(*library_opener(void))(const char *, int)
{
	void *(*open)(const char *, int);

	*(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
	return open;
}

static void *library_open(void)
{
	void *(*open)(const char *, int) = library_opener(), *handle = NULL;

	for (size_t i = 0; open && !handle && i < ARRAY_SIZE(library_names); i++)
		handle = open(library_names[i], RTLD_NOW | RTLD_LOCAL);
	return handle;
}

/* The library stays, once it is loaded. NULL: it is not here. */
static const struct library *library(void)
{
	static void *functions[ARRAY_SIZE(function_names)];
	static struct library loaded;
	void *handle = loaded.version_info ? NULL : library_open();

	if (!handle)
		return loaded.version_info ? &loaded : NULL;
	for (size_t i = 0; i < ARRAY_SIZE(function_names); i++)
		if (!(functions[i] = dlsym(handle, function_names[i])))
			return NULL;
	_Static_assert(sizeof(functions) == sizeof(loaded), "pointers only");
	memcpy(&loaded, functions, sizeof(loaded));
	return &loaded;
}

int http_client_new(struct http_client **out)
{
	const struct library *curl = library();
	struct http_client *client = curl ? calloc(1, sizeof(*client)) : NULL;

	if (!curl)
		return error_set(-ELIBACC,
				 library_opener() ? "it needs libcurl, which is not here (Debian: "
						    "libcurl3-gnutls)"
						  : "it needs libcurl, which a static build cannot "
						    "load");
	if (!client)
		return -ENOMEM;
	client->curl = curl;
	client->easy = curl->easy_init();
	if (!client->easy) {
		free(client);
		return -ENOMEM;
	}
	*out = client;
	return 0;
}

void http_client_free(struct http_client *client)
{
	if (client)
		client->curl->easy_cleanup(client->easy);
	free(client);
}

const char *http_client_version(void)
{
	const struct library *curl = library();

	return curl ? curl->version_info(CURLVERSION_NOW)->version : NULL;
}

int http_token_read(const char *path, char out[HTTP_TOKEN_SIZE])
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t got = fd < 0 ? -1 : read(fd, out, HTTP_TOKEN_SIZE - 1);

	if (got < 0)
		return error_errno();
	out[got] = '\0';
	size_t bytes = strcspn(out, "\r\n");
	if (!bytes)
		return error_set(-EINVAL, "its first line is empty");
	if (bytes == HTTP_TOKEN_SIZE - 1)
		return error_set(-EINVAL, "its first line is longer than %u bytes",
				 HTTP_TOKEN_SIZE - 2);
	out[bytes] = '\0';
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)out[i] < ' ' || out[i] == 0x7f)
			return error_set(-EINVAL, "its first line is no text");
	return 0;
}

bool http_url_is_valid(const char *url)
{
	size_t scheme = !strncasecmp(url, "http://", 7)    ? 7
			: !strncasecmp(url, "https://", 8) ? 8
							   : 0;
	size_t bytes = strlen(url);

	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)url[i] <= ' ' || (unsigned char)url[i] >= 0x7f)
			return false;
	return scheme && bytes < 2048 && url[scheme] && !strchr("/:", url[scheme]) &&
	       !strpbrk(url + scheme, "?#@\\\"<>");
}

struct receiving {
	struct http_answer *answer;
	size_t max;
	bool has_header; /* all of it */
};

/* libcurl takes a header for complete when the connection ends within it. */
static size_t header_take(char *data, size_t size, size_t count, void *context)
{
	struct receiving *receiving = context;
	size_t bytes = size * count;

	/* There may be several, as of a proxy; after the body there may be trailers. */
	if (bytes > 5 && !memcmp(data, "HTTP/", 5))
		receiving->has_header = false;
	else if (bytes && (data[0] == '\r' || data[0] == '\n'))
		receiving->has_header = true;
	return bytes;
}

static size_t body_take(char *data, size_t size, size_t count, void *context)
{
	struct receiving *receiving = context;
	struct buffer *body = &receiving->answer->body;
	size_t bytes = size * count, left = receiving->max - body->size;

	receiving->answer->is_cut = bytes > left;
	if (buffer_append(body, data, bytes < left ? bytes : left))
		return 0;
	return receiving->answer->is_cut ? 0 : bytes;
}

/* Option by option; the first failure stays. */
#define SET(option, value) (code = code ?: curl->easy_setopt(easy, CURLOPT_##option, value))

static CURLcode request_set(struct http_client *client, const struct http_request *request,
			    struct curl_slist *headers, struct receiving *receiving)
{
	const struct library *curl = client->curl;
	CURL *easy = client->easy;
	CURLcode code = CURLE_OK;

	curl->easy_reset(easy);
	SET(ERRORBUFFER, client->why);
	SET(URL, request->url);
	SET(PROTOCOLS_STR, "http,https");
	SET(FOLLOWLOCATION, 0L);
	SET(NOSIGNAL, 1L);
	SET(TIMEOUT, (long)request->seconds);
	SET(CONNECTTIMEOUT, (long)request->seconds);
	SET(USERAGENT, "tracer/" TRACER_VERSION);
	SET(HTTPHEADER, headers);
	SET(HEADERFUNCTION, header_take);
	SET(HEADERDATA, receiving);
	SET(WRITEFUNCTION, body_take);
	SET(WRITEDATA, receiving);
	if (request->ca)
		SET(CAINFO, request->ca);
	if (!request->body)
		return code;
	SET(POST, 1L);
	SET(POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
	return SET(POSTFIELDS, request->body);
}

static int failure(const struct http_client *client, const struct http_request *request,
		   CURLcode code)
{
	const char *why = client->why[0] ? client->why : client->curl->easy_strerror(code);

	switch (code) {
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_OPERATION_TIMEDOUT:
		return error_set(-ETIMEDOUT, "no answer within %u s", request->seconds);
	case CURLE_PEER_FAILED_VERIFICATION:
		return error_set(
			-EKEYREJECTED,
			"its certificate is not valid: it has expired, is for another name, "
			"or of an authority that %s does not have",
			request->ca ?: "the system");
	case CURLE_SSL_CACERT_BADFILE:
		return error_set(-EKEYREJECTED, "%s is no file of certificates in PEM",
				 request->ca ?: "the system's");
	default:
		return error_set(-EIO, "%s", why);
	}
}

static int headers_make(const struct http_client *client, const struct http_request *request,
			struct curl_slist **out)
{
	/* Without it libcurl would wait for "100 Continue" before a large body. */
	struct curl_slist *list = client->curl->slist_append(NULL, "Expect:"), *longer = list;

	for (size_t i = 0; longer && i < request->header_count; i++)
		longer = client->curl->slist_append(list, request->headers[i]);
	*out = list;
	return longer ? 0 : -ENOMEM;
}

int http_ask(struct http_client *client, const struct http_request *request,
	     struct http_answer *answer)
{
	struct receiving receiving = {.answer = answer, .max = request->answer_max};
	struct curl_slist *headers;
	curl_off_t retry_after = 0;
	long status = 0;
	int err = headers_make(client, request, &headers);

	answer->body.size = 0;
	answer->is_cut = false;
	client->why[0] = '\0';
	CURLcode code =
		err ? CURLE_OUT_OF_MEMORY : request_set(client, request, headers, &receiving);
	code = code ?: client->curl->easy_perform(client->easy);
	client->curl->easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &status);
	client->curl->easy_getinfo(client->easy, CURLINFO_RETRY_AFTER, &retry_after);
	/* The handle keeps its connection, and must not keep what is freed here. */
	client->curl->easy_reset(client->easy);
	client->curl->slist_free_all(headers);
	answer->status = (unsigned int)status;
	answer->retry_after = retry_after > 0 ? (uint64_t)retry_after : 0;
	if (code && !(code == CURLE_WRITE_ERROR && answer->is_cut))
		return failure(client, request, code);
	if (!receiving.has_header)
		return error_set(-EIO, "its answer has ended within the header");
	err = buffer_append(&answer->body, "", 1);
	if (!err)
		answer->body.size--;
	return err;
}

void http_answer_text(const struct http_answer *answer, char *out, size_t capacity)
{
	const char *line = (const char *)answer->body.data;

	line += strspn(line, "\r\n");
	int bytes = (int)strcspn(line, "\r\n");
	snprintf(out, capacity, "status %u%s%.*s", answer->status, bytes ? ": " : "", bytes, line);
}

void http_answer_free(struct http_answer *answer)
{
	buffer_free(&answer->body);
	*answer = (struct http_answer){0};
}

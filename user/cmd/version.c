/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer --version. The only file that a change of the commit builds anew. Headers of Capstone 5
 * and of BPF cannot be in one file: both define bpf_insn.
 */
#include <capstone/capstone.h>
#include <curses.h>
#include <elfutils/libdwfl.h>
#include <jansson.h>
#include <lzma.h>
#include <microhttpd.h>
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <zlib.h>
#include <zstd.h>

#include "attach/links/links.h"
#include "cmd/cli.h"
#include "commit.h"
#include "util/http_client.h"

/* Without a name or a letter before it. */
static const char *digits(const char *version)
{
	while (*version && (*version < '0' || *version > '9'))
		version++;
	return version;
}

void cli_version_print(void)
{
	int major = 0, minor = 0;

	cs_version(&major, &minor);
	printf("tracer %s%s%s%s\n", TRACER_VERSION, TRACER_COMMIT[0] ? " (" : "", TRACER_COMMIT,
	       TRACER_COMMIT[0] ? ")" : "");
	printf("with libbpf %s, elfutils (libelf, libdw) %s, capstone %d.%d, protobuf-c %s, "
	       "jansson %s, zlib %s, lzma %s, zstd %s, ncurses %s, libmicrohttpd %s, "
	       "libcurl %s\n",
	       digits(links_libbpf_version()), dwfl_version(NULL), major, minor,
	       protobuf_c_version(), jansson_version_str(), zlibVersion(), lzma_version_string(),
	       ZSTD_versionString(), digits(curses_version()), MHD_get_version(),
	       http_client_version() ?: "none");
}

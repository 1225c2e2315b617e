/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/serve_open.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/options/options.h"
#include "util/descriptor.h"
#include "util/error.h"

#define LINK       3 /* the only descriptor of that process, beside 0 to 2 */
#define LINK_BYTES 256u

/* A browser is not for root. 0, -errno. */
static int user_become(void)
{
	const char *uid_text = getenv("SUDO_UID"), *gid_text = getenv("SUDO_GID");
	uint64_t uid, gid;

	if (geteuid() || !uid_text || !gid_text || cli_parse_number(uid_text, 1, INT_MAX, &uid) ||
	    cli_parse_number(gid_text, 0, INT_MAX, &gid))
		return 0;
	return setgroups(0, NULL) || setgid((gid_t)gid) || setuid((uid_t)uid) ? error_errno() : 0;
}

/* Writes a page that leads to the link, for the user alone. 0, -errno. */
static int page_write(char path[PATH_MAX], const char *link)
{
	char page[2 * LINK_BYTES + 128];
	const char *folder = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (!folder || stat(folder, &st) || st.st_uid != geteuid())
		folder = "/tmp";
	if (snprintf(path, PATH_MAX, "%s/tracer-XXXXXX.html", folder) >= PATH_MAX)
		return -ENAMETOOLONG;
	int fd = mkostemps(path, 5, O_CLOEXEC); /* mode 0600 */
	if (fd < 0)
		return error_errno();
	int bytes = snprintf(page, sizeof(page),
			     "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url=%s\">"
			     "<a href=\"%s\">tracer serve</a>\n",
			     link, link);
	int err = descriptor_write(fd, page, (size_t)bytes);
	close(fd);
	return err;
}

/* The file is there until the server ends: a browser may be slow to start. */
_Noreturn static void open_run(int from)
{
	char link[LINK_BYTES] = "", path[PATH_MAX] = "";
	ssize_t got = read(from, link, sizeof(link) - 1);
	int err = got > 0 ? user_become() ?: page_write(path, link) : 0;
	pid_t browser = -1;

	if (got > 0 && !err)
		browser = fork();
	if (!browser) {
		execlp("xdg-open", "xdg-open", path, NULL);
		error_print(error_errno(), "open the link that was printed", "xdg-open");
		_exit(EXIT_FAILED);
	}
	if (err)
		error_print(err, "open the link that was printed", "--open");
	while (browser > 0 && waitpid(browser, NULL, 0) < 0 && errno == EINTR)
		;
	while (got > 0)
		got = read(from, link, sizeof(link));
	if (path[0])
		unlink(path);
	_exit(EXIT_DONE);
}

int serve_open_begin(void)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return error_errno();
	fflush(NULL);
	pid_t child = fork();
	if (child < 0) {
		int err = error_errno();

		close(ends[0]);
		close(ends[1]);
		return err;
	}
	if (!child) {
		setsid(); /* it ends with the server, and Ctrl-C is not for the browser */
		if (dup3(ends[0], LINK, O_CLOEXEC) < 0 && errno != EINVAL)
			_exit(EXIT_FAILED);
		syscall(SYS_close_range, LINK + 1u, ~0u, 0u);
		open_run(LINK);
	}
	close(ends[0]);
	return ends[1];
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "session/doctor/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach.h"
#include "attach/links/hints.h"
#include "proc/own_function.h"
#include "session/doctor/blind.h"
#include "util/clock.h"
#include "util/error.h"

#define RING_BYTES (64u << 10)

static const uint64_t sizes[TRIAL_BLOCKS] = {1000, 2000, 3000};

/*
 * The probed function: it returns a "block" of the given size. Its first instruction is one that
 * the kernel emulates.
 */
#ifdef __aarch64__ /* gcc has no naked functions there */
void *block_give(size_t bytes) __asm__("trial_block_give");
__asm__(".text; .type trial_block_give,%function; trial_block_give: b 1f;"
	"1: add x0, x0, #0x10, lsl #12; ret; .size trial_block_give, 12");
#else
__attribute__((naked, noinline)) static void *block_give(size_t bytes __attribute__((unused)))
{
	asm volatile("nop; leaq 0x10000(%rdi), %rax; ret");
}
#endif

/* The blocks that were reported. */
struct trial_run {
	struct attach *attach;
	pid_t child;
	uint64_t count, bytes;
	int wrong; /* a block was not the expected one */
};

static int record_take(void *context, void *record, size_t size)
{
	const struct event_alloc *block = record;
	struct trial_run *run = context;

	if (size < sizeof(*block) || block->header.type != EVENT_ALLOC ||
	    block->header.tgid != (uint32_t)run->child)
		return 0;
	run->wrong |=
		run->count >= TRIAL_BLOCKS || block->bytes != sizes[run->count % TRIAL_BLOCKS];
	run->bytes += block->bytes;
	run->count++;
	return 0;
}

static int probe_place(struct trial_run *run)
{
	struct plan_site site = {
		.symbol = "block_give",
		.cookie = ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_NATIVE, ABI_ARGUMENT_1, ABI_REG_COUNT,
				     ABI_REG_COUNT),
		.op = ABI_OP_MALLOC,
		.with_return = 1,
		.emulated = 1,
	};
	const struct plan plan = {.sites = &site, .count = 1};
	const struct abi_target abi = {
		.nframe = 1, .space_id = 1, .layers = 1u << EVENT_LAYER_NATIVE};
	char path[OWN_FUNCTION_PATH];
	struct elf_file *file;
	int fd, err = own_function_find((uintptr_t)block_give, path, &site.offset);

	if (err)
		return err;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_set(-errno, "%s: %s", path, strerror(errno));
	err = elf_file_open(&file, fd, path, NULL);
	if (err) {
		close(fd);
		return err;
	}
	err = attach_sites(run->attach, &plan, file, run->child)
		      ?: attach_target(run->attach, run->child, &abi);
	elf_file_close(file);
	return err;
}

/* Waits for a byte from the parent, and makes the blocks. Never returns. */
static void child_run(int wait_fd)
{
	char word;

	if (read(wait_fd, &word, 1) != 1)
		_exit(1);
	for (size_t i = 0; i < TRIAL_BLOCKS; i++)
		if ((uintptr_t)block_give(sizes[i]) != sizes[i] + 0x10000)
			_exit(1);
	_exit(0);
}

static int events_judge(struct trial_run *run, int status, const char **remedy)
{
	struct blind_facts facts = {0};
	__u64 loss[LOSS_COUNT];
	int err = attach_drain(run->attach, 1u << 16);

	if (err < 0)
		return err;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return error_set(-ENODATA,
				 "a child that ran into a probe did not survive it (status 0x%x)",
				 status);
	if (run->count == TRIAL_BLOCKS && !run->wrong)
		return 0;
	if (!attach_loss(run->attach, loss))
		for (size_t i = 0; i < LOSS_COUNT; i++)
			facts.loss[i] = loss[i];
	facts.observed.blocks = run->count;
	err = blind_check(&facts, remedy);
	if (err)
		return err;
	*remedy = "please report it, with this output";
	return error_set(
		-ENODATA,
		"a probed child made %u blocks of %u bytes, but events reported %llu of %llu",
		TRIAL_BLOCKS, TRIAL_BYTES, (unsigned long long)run->count,
		(unsigned long long)run->bytes);
}

static int child_try(struct trial_run *run, struct trial *out, const char **remedy)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	int fds[2], status = 0, err;

	if (pipe2(fds, O_CLOEXEC))
		return error_errno();
	run->child = fork();
	if (!run->child) {
		close(fds[1]);
		child_run(fds[0]);
	}
	err = run->child < 0 ? error_errno() : 0;
	close(fds[0]);
	if (!err) {
		err = probe_place(run);
		if (err)
			hint_explain(HINT_PROBE, err, remedy);
	}
	out->placed = !err;
	out->place_ns = err ? 0 : clock_ns(CLOCK_MONOTONIC) - start;
	if (!err && write(fds[1], "", 1) != 1)
		err = error_errno();
	/* Without that byte the child reads the end of the pipe and exits too. */
	close(fds[1]);
	while (run->child > 0 && waitpid(run->child, &status, 0) < 0 && errno == EINTR)
		;
	if (!err)
		err = events_judge(run, status, remedy);
	out->seen = !err;
	return err;
}

int trial_run(const struct features *features, struct trial *out, const char **remedy)
{
	struct trial_run run = {0};
	const struct attach_opts opts = {
		.ring_bytes = RING_BYTES, .record = record_take, .context = &run};
	uint64_t start;
	int err;

	memset(out, 0, sizeof(*out));
	*remedy = NULL;
	err = features_check(features, remedy);
	if (err)
		return err;
	start = clock_ns(CLOCK_MONOTONIC);
	err = attach_new(&run.attach, features, &opts);
	if (err)
		return hint_explain(HINT_LOAD, err, remedy);
	out->loaded = 1;
	out->load_ns = clock_ns(CLOCK_MONOTONIC) - start;
	out->links = attach_backend(run.attach);
	err = child_try(&run, out, remedy);
	attach_free(run.attach);
	return err;
}

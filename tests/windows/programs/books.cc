// SPDX-License-Identifier: Apache-2.0
/*
 * A C++ program that fills containers, and makes and drops strings of the sizes that these keep, so
 * that malloc gives the chunk of a dropped one to one that stays.
 *
 * usage: books [ROUNDS]    how many times it makes and drops 11 strings each round (2)
 *
 * Prints "ready". SIGUSR1: prints {function: [bytes, blocks]} of what its functions have kept since
 * the last time, and waits for a line on stdin. Functions that are judged are APART.
 */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define APART __attribute__((noinline))

static const size_t ROOM = 4000000; /* tables large enough do not grow */
static std::map<long, std::string> by_number;
static std::unordered_map<std::string, std::string> by_name;
static std::vector<std::string> titles;
static volatile sig_atomic_t asked;

struct Count {
	const char *name;
	size_t bytes, blocks;
};
static Count counts[] = {{"keep_in_map", 0, 0}, {"keep_in_hash", 0, 0}, {"keep_in_vector", 0, 0}};

static void count(Count &sum, size_t bytes)
{
	sum.bytes += bytes;
	sum.blocks++;
}

static void count(Count &sum, const std::string &text)
{
	count(sum, text.capacity() + 1);
}

APART static void keep_in_map(long n)
{
	auto &kept = *by_number.emplace(n, std::string(40 + n % 3 * 20, 'm')).first;

	count(counts[0], kept.second);
	/* Colour, parent, left and right come before the value. */
	count(counts[0], 4 * sizeof(void *) + sizeof(kept));
}

APART static void keep_in_hash(long n)
{
	std::string name = std::string(40, 'a' + n % 7) + std::to_string(n);
	auto &kept = *by_name.emplace(std::move(name), std::string(60, 'h')).first;

	count(counts[1], kept.first);
	count(counts[1], kept.second);
	/* The next one, and the hash. */
	count(counts[1], 2 * sizeof(void *) + sizeof(kept));
}

APART static void keep_in_vector()
{
	titles.push_back(std::string(80, 'v'));
	count(counts[2], titles.back());
}

APART static size_t drop_numbers(long n)
{
	std::string one(40, 'd'), two(60, 'd'), three(80, 'd');

	return one.size() + two.size() + three.size() + (size_t)n;
}

APART static size_t drop_names(long n)
{
	std::vector<std::string> some;

	some.reserve(8);
	for (int i = 0; i < 8; i++)
		some.push_back(std::string(40 + (size_t)(n + i) % 3 * 20, 'n'));
	return some[(size_t)n % 8].size();
}

static void ask(int)
{
	asked = 1;
}

static int answer()
{
	char line[100];
	const char *before = "{";

	asked = 0;
	for (Count &sum : counts) {
		printf("%s\"%s\": [%zu, %zu]", before, sum.name, sum.bytes, sum.blocks);
		sum.bytes = sum.blocks = 0;
		before = ", ";
	}
	printf("}\n");
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) != NULL;
}

static size_t round_of(long n, int rounds)
{
	size_t sum = 0;

	for (int i = 0; i < rounds; i++)
		sum += drop_names(n) + drop_numbers(n);
	if (n % 2 == 0)
		keep_in_map(n);
	if (n % 3 == 0)
		keep_in_hash(n);
	if (n % 4 == 0)
		keep_in_vector();
	return sum;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 2;
	const struct timespec rest = {0, 700000};
	size_t sum = 0;

	signal(SIGUSR1, ask);
	by_name.reserve(ROOM);
	titles.reserve(ROOM);
	printf("ready\n");
	fflush(stdout);
	for (long n = 1;; n++) {
		sum += round_of(n, rounds);
		nanosleep(&rest, NULL);
		if (asked && !answer())
			return sum == 1;
	}
}

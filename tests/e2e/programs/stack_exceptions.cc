// SPDX-License-Identifier: Apache-2.0
// Containers and exceptions, in two threads: blocks are requested while an exception is thrown,
// caught and thrown again. Nothing is freed at the end. Prints how many objects are kept.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct node {
	std::map<std::string, std::vector<int>> entries;
};

static std::vector<node *> kept;
static std::mutex lock;

__attribute__((noinline)) static void keep(int number)
{
	auto *one = new node;

	one->entries["a key that no short string holds " + std::to_string(number)].push_back(
		number);
	std::lock_guard<std::mutex> guard(lock);
	kept.push_back(one);
}

struct unwound {
	int number;

	~unwound()
	{
		keep(number); // while the exception is in flight
	}
};

__attribute__((noinline)) static int descend(int depth, int number)
{
	volatile char space[64];

	space[0] = (char)depth;
	if (depth)
		return descend(depth - 1, number) + space[0];
	keep(number);
	unwound guard{number};
	if (number % 3 == 0)
		throw std::runtime_error("number " + std::to_string(number));
	return number;
}

static void work(int first)
{
	for (int i = 0; i < 1000; i++) {
		try {
			try {
				descend(i % 30, first + i);
			} catch (const std::exception &) {
				keep(i);
				throw;
			}
		} catch (const std::exception &) {
			keep(i);
		}
	}
}

int main()
{
	std::thread other(work, 10000);

	work(0);
	other.join();
	printf("%zu\n", kept.size());
	fflush(stdout);
	_Exit(0);
}

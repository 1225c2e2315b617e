// SPDX-License-Identifier: Apache-2.0
/*
 * A C++ program with jemalloc (preloaded or linked): maps, strings and vectors. For each line that it
 * reads it prints what jemalloc itself counts, as JSON; after "purge" it returns free pages before.
 */
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

extern "C" int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static size_t count_of(const std::string &name)
{
	size_t value = 0, size = sizeof(value);

	mallctl(name.c_str(), &value, &size, nullptr, 0);
	return value;
}

int main()
{
	std::map<int, std::string> names;
	std::unordered_map<std::string, std::vector<double>> series;
	std::string line;

	if (!mallctl)
		return 1;
	for (int i = 0; i < 200000; i++)
		names[i] = std::string(i % 300, 'x');
	for (int i = 0; i < 20000; i++)
		series["key" + std::to_string(i)].assign(i % 700, 1.0);
	for (int i = 0; i < 200000; i++)
		if (i % 3)
			names.erase(i);
	std::cout << "ready" << std::endl;
	while (std::getline(std::cin, line)) {
		uint64_t epoch = 1;

		if (line == "purge")
			mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);
		mallctl("epoch", nullptr, nullptr, &epoch, sizeof(epoch));
		std::string text = "{";
		for (const char *name : {"allocated", "active", "mapped", "retained"})
			text += std::string(text.size() > 1 ? ", \"" : "\"") + name +
				"\": " + std::to_string(count_of(std::string("stats.") + name));
		std::cout << text << "}" << std::endl;
	}
	return 0;
}

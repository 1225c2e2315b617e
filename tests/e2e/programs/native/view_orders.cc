// SPDX-License-Identifier: Apache-2.0
// Keeps strings, vectors and map entries that two functions make by way of the standard library.
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Order {
	std::string name;
	std::vector<int> items;
};

static auto &orders = *new std::map<int, std::unique_ptr<Order>>;

__attribute__((noinline)) void add_order(int number)
{
	auto order = std::make_unique<Order>();

	order->name.assign(100 + number % 50, 'x');
	for (int i = 0; i < 20; i++)
		order->items.push_back(i);
	orders[number] = std::move(order);
}

template <typename T> __attribute__((noinline)) T *fill(std::vector<T> &values, T value)
{
	values.resize(values.size() + 1000 * 100, value);
	return values.data();
}

int main()
{
	auto &values = *new std::vector<double>;

	for (int i = 0; i < 500; i++)
		add_order(i);
	return fill<double>(values, 1.0) == nullptr;
}

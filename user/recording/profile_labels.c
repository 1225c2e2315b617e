/* SPDX-License-Identifier: Apache-2.0 */
#include "recording/profile_labels.h"

#include <string.h>

#include "recording/profile_fields.h"

static const char *const mean_labels[MEAN_LABELS] = {
	[MEAN_ALLOCATED] = "allocated",
	[MEAN_LIFETIME] = "lifetime",
};

static int text_is(struct span text, const char *wanted)
{
	return text.bytes == strlen(wanted) && !memcmp(text.data, wanted, text.bytes);
}

void label_keys_add(struct label_keys *keys, struct span text, uint64_t index)
{
	if (!text.bytes)
		return;
	for (int label = 0; label < RECORD_LABELS; label++)
		if (text_is(text, record_labels[label]))
			keys->values[label] = index;
	for (int label = 0; label < MEAN_LABELS; label++)
		if (text_is(text, mean_labels[label]))
			keys->means[label] = index;
}

struct label_read label_read(struct span message)
{
	struct label_read label = {0};
	struct field field;

	while (message.bytes && !field_take(&message, &field)) {
		if (field.id == LABEL_KEY)
			label.key = field.number;
		if (field.id == LABEL_STR || field.id == LABEL_NUM)
			label.number = field.number;
		label.is_text |= field.id == LABEL_STR;
	}
	return label;
}

int label_value(const struct label_keys *keys, const struct label_read *label, int of_mean)
{
	for (int value = 0; value < RECORD_LABELS; value++)
		if (label->key && label->key == keys->values[value])
			return value == RECORD_BYTES && !of_mean ? RECORD_LABELS : value;
	return RECORD_LABELS;
}

int sample_is_of_mean(const struct label_keys *keys, struct span sample)
{
	struct field field;

	while (sample.bytes && !field_take(&sample, &field)) {
		struct label_read label;

		if (field.id != SAMPLE_LABEL || field.wire_type != 2)
			continue;
		label = label_read(field.span);
		for (int mean = 0; mean < MEAN_LABELS; mean++)
			if (label.key && label.key == keys->means[mean])
				return 1;
	}
	return 0;
}

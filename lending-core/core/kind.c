// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Kinds of functions; see kind.h. */

#include "pcilend/identity.h"
#include "pcilend/kind.h"

/* PCI Code and ID Assignment Specification 1.11, section 1: no bridges, and nothing extinct. */
const struct pcilend_kind_class pcilend_kind_classes[PCILEND_KIND_CLASSES] = {
	{ 0x01, "storage", "Borrowed storage controller" },
	{ 0x02, "network", "Borrowed network controller" },
	{ 0x03, "display", "Borrowed display controller" },
	{ 0x04, "multimedia", "Borrowed multimedia device" },
	{ 0x05, "memory", "Borrowed memory controller" },
	{ 0x07, "communication", "Borrowed communication controller" },
	{ 0x08, "system", "Borrowed system peripheral" },
	{ 0x09, "input", "Borrowed input device" },
	{ 0x0b, "processor", "Borrowed processor" },
	{ 0x0c, "serial", "Borrowed serial bus controller" },
	{ 0x0d, "wireless", "Borrowed wireless controller" },
	{ 0x10, "encryption", "Borrowed encryption controller" },
	{ 0x11, "signal", "Borrowed signal processing controller" },
	{ 0x12, "accelerator", "Borrowed processing accelerator" },
	{ 0x00, "unclassified", "Borrowed device from before there were classes" },
	{ 0xff, "unassigned", "Borrowed device of no class" },
};
EXPORT_SYMBOL_GPL(pcilend_kind_classes);

/* A hexadecimal number that may be left out, or have an 'x' where any digit will do. */
struct field {
	u32 value;
	u32 mask;
};

static int kind_refuse(const char **why, const char *sentence)
{
	*why = sentence;
	return -EINVAL;
}

static bool kind_is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Return: where the name ends; NULL: it is none. */
static const char *kind_take_name(const char *text, char name[PCILEND_KIND_NAME_BYTES])
{
	size_t length = 0;

	memset(name, 0, PCILEND_KIND_NAME_BYTES);
	while (kind_is_name_char(text[length]) || (length && text[length] == '-')) {
		if (length == PCILEND_KIND_NAME_BYTES - 1)
			return NULL;
		name[length] = text[length];
		length++;
	}
	if (!length || name[length - 1] == '-' || (text[length] && text[length] != ' '))
		return NULL;
	return text + length;
}

static int kind_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Nothing, or that many digits. Return: where it ends; NULL: it is no such number. */
static const char *kind_take_field(const char *text, int digits, struct field *field)
{
	int i;

	field->value = 0;
	field->mask = 0;
	if (kind_hex(*text) < 0 && *text != 'x')
		return text;
	for (i = 0; i < digits; i++, text++) {
		int digit = kind_hex(*text);

		if (digit < 0 && *text != 'x')
			return NULL;
		field->value = field->value << 4 | (digit < 0 ? 0 : digit);
		field->mask = field->mask << 4 | (digit < 0 ? 0 : 0xf);
	}
	return text;
}

/* VENDOR:DEVICE:CLASS:INTERFACE, as far as it goes. Return: where it ends, or NULL. */
static const char *kind_take_device(const char *text, struct pcilend_kind *kind)
{
	static const int digits[] = { 4, 4, 4, 2 };
	struct field field[4] = { { 0, 0 } };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(digits); i++) {
		text = kind_take_field(text, digits[i], &field[i]);
		if (!text)
			return NULL;
		if (*text != ':')
			break;
		text++;
	}
	if (*text && *text != ' ')
		return NULL;
	kind->vendor = (u16)field[0].value;
	kind->vendor_mask = (u16)field[0].mask;
	kind->device = (u16)field[1].value;
	kind->device_mask = (u16)field[1].mask;
	kind->class_code = field[2].value << 8 | field[3].value;
	kind->class_mask = field[2].mask << 8 | field[3].mask;
	return text;
}

static const char *kind_take_function(const char *text, struct pcilend_kind *kind)
{
	char id[PCILEND_ID_TEXT_BYTES] = { 0 };
	size_t length = 0;

	while (text[length] && text[length] != ' ') {
		if (length == sizeof(id) - 1)
			return NULL;
		id[length] = text[length];
		length++;
	}
	return pcilend_id_parse(id, &kind->id) ? NULL : text + length;
}

static bool kind_take_label(const char *text, struct pcilend_kind *kind)
{
	size_t length = strlen(text);

	if (!length || length >= sizeof(kind->label))
		return false;
	memcpy(kind->label, text, length);
	return pcilend_label_valid(kind->label);
}

/* Text behind @word at @text, or NULL if that is not there. */
static const char *kind_behind(const char *text, const char *word)
{
	size_t length = strlen(word);

	return strncmp(text, word, length) ? NULL : text + length;
}

static bool kind_is_any(const struct pcilend_kind *kind)
{
	return !kind->id && !kind->vendor_mask && !kind->device_mask && !kind->class_mask &&
	       !kind->label[0];
}

int pcilend_kind_parse(const char *text, struct pcilend_kind *kind, const char **why)
{
	bool had_device = false, had_function = false;
	const char *value;

	memset(kind, 0, sizeof(*kind));
	text = kind_take_name(text, kind->name);
	if (!text)
		return kind_refuse(why, "a name of up to 31 small letters, digits and, in between, '-' comes first");
	while (*text) {
		text++;
		value = kind_behind(text, "label=");
		if (value) {
			if (!kind_take_label(value, kind))
				return kind_refuse(why, "label= wants 1 to 63 printable ASCII characters, and comes last");
			break;
		}
		value = kind_behind(text, "device=");
		if (value && !had_device) {
			had_device = true;
			text = kind_take_device(value, kind);
			if (!text)
				return kind_refuse(why, "device= wants [VENDOR]:[DEVICE][:CLASS[:INTERFACE]], as lspci -d does");
			continue;
		}
		value = kind_behind(text, "function=");
		if (value && !had_function) {
			had_function = true;
			text = kind_take_function(value, kind);
			if (!text)
				return kind_refuse(why, "function= wants an id as 'pcilend list' shows it, such as 40001");
			continue;
		}
		return kind_refuse(why, "behind the name come device=, function= and label=, each once, with one space between them");
	}
	if (kind_is_any(kind))
		return kind_refuse(why, "say device=, function= or label=: it would be any function of any host");
	return 0;
}
EXPORT_SYMBOL_GPL(pcilend_kind_parse);

bool pcilend_kind_is_reserved(const char *name)
{
	unsigned int i;

	for (i = 0; i < PCILEND_KIND_CLASSES; i++) {
		if (!strcmp(name, pcilend_kind_classes[i].name))
			return true;
	}
	return !strcmp(name, "function");	/* pcilend-function, below each function */
}
EXPORT_SYMBOL_GPL(pcilend_kind_is_reserved);

static int kind_put_field(char *text, int digits, u32 value, u32 mask)
{
	int i;

	if (!mask)
		return 0;
	for (i = 0; i < digits; i++) {
		int shift = 4 * (digits - 1 - i);

		text[i] = mask >> shift & 0xf ? "0123456789abcdef"[value >> shift & 0xf] : 'x';
	}
	return digits;
}

int pcilend_kind_format(const struct pcilend_kind *kind, char text[PCILEND_KIND_TEXT_BYTES])
{
	char id[PCILEND_ID_TEXT_BYTES];
	int at = snprintf(text, PCILEND_KIND_TEXT_BYTES, "%s", kind->name);

	if (kind->vendor_mask || kind->device_mask || kind->class_mask) {
		at += snprintf(text + at, PCILEND_KIND_TEXT_BYTES - at, " device=");
		at += kind_put_field(text + at, 4, kind->vendor, kind->vendor_mask);
		text[at++] = ':';
		at += kind_put_field(text + at, 4, kind->device, kind->device_mask);
		if (kind->class_mask) {
			text[at++] = ':';
			at += kind_put_field(text + at, 4, kind->class_code >> 8,
					     kind->class_mask >> 8);
		}
		if (kind->class_mask & 0xff) {
			text[at++] = ':';
			at += kind_put_field(text + at, 2, kind->class_code & 0xff,
					     kind->class_mask & 0xff);
		}
	}
	if (kind->id)
		at += snprintf(text + at, PCILEND_KIND_TEXT_BYTES - at, " function=%s",
			       pcilend_id_format(kind->id, id));
	if (kind->label[0])
		at += snprintf(text + at, PCILEND_KIND_TEXT_BYTES - at, " label=%s",
			       (const char *)kind->label);
	text[at] = '\0';
	return at;
}
EXPORT_SYMBOL_GPL(pcilend_kind_format);

bool pcilend_kind_has(const struct pcilend_kind *kind, const struct pcilend_msg_function *info)
{
	u32 class_code = le32_to_cpu(info->class_revision) >> 8;

	if (kind->id && kind->id != le32_to_cpu(info->id))
		return false;
	if ((le16_to_cpu(info->vendor) ^ kind->vendor) & kind->vendor_mask ||
	    (le16_to_cpu(info->device) ^ kind->device) & kind->device_mask ||
	    (class_code ^ kind->class_code) & kind->class_mask)
		return false;
	return !kind->label[0] || !memcmp(kind->label, info->label, sizeof(kind->label));
}

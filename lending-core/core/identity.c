// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Function ids and UUIDs; see identity.h. */

#include "pcilend/identity.h"

static const u8 uuid_prefix[4] = { 0x70, 0x63, 0x6c, 0x64 }; /* "pcld" */

/* Public: it only keeps our hashes apart from other uses of SipHash. Never to change. */
static const u8 uuid_key[16] = {
	'p', 'c', 'i', 'l', 'e', 'n', 'd', ' ', 'f', 'u', 'n', 'c', 't', 'i', 'o', 'n',
};

static const char hex_digits[] = "0123456789abcdef";

static int identity_hex_value(char c, bool upper)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (upper && c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

char *pcilend_id_format(u32 id, char text[PCILEND_ID_TEXT_BYTES])
{
	int shift = 28;
	char *out = text;

	while (shift && !(id >> shift))
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		*out++ = hex_digits[id >> shift & 0xf];
	*out = '\0';
	return text;
}

int pcilend_id_parse(const char *text, u32 *id)
{
	u32 value = 0;
	size_t i;

	if (text[0] == '0')
		return -EINVAL;
	for (i = 0; text[i]; i++) {
		int digit = identity_hex_value(text[i], false);

		if (digit < 0 || i == PCILEND_ID_TEXT_BYTES - 1)
			return -EINVAL;
		value = value << 4 | digit;
	}
	if (!pcilend_id_valid(value))
		return -EINVAL;
	*id = value;
	return 0;
}

bool pcilend_pci_place(u32 id, u32 *domain, u8 *bus)
{
	if (pcilend_id_node(id) > PCILEND_PCI_NODE_MAX ||
	    pcilend_id_index(id) > PCILEND_PCI_INDEX_MAX)
		return false;
	*domain = PCILEND_PCI_DOMAIN_FIRST + pcilend_id_node(id);
	*bus = (u8)pcilend_id_index(id);
	return true;
}

struct sip_state {
	u64 v[4];
};

static u64 identity_rotate_left(u64 value, int bits)
{
	return value << bits | value >> (64 - bits);
}

static void identity_sip_rounds(struct sip_state *state, int rounds)
{
	u64 *v = state->v;

	while (rounds--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = identity_rotate_left(v[1], 13) ^ v[0];
		v[3] = identity_rotate_left(v[3], 16) ^ v[2];
		v[0] = identity_rotate_left(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = identity_rotate_left(v[1], 17) ^ v[2];
		v[3] = identity_rotate_left(v[3], 21) ^ v[0];
		v[2] = identity_rotate_left(v[2], 32);
	}
}

static u64 identity_load_le64(const u8 *bytes, size_t length)
{
	u64 value = 0;

	while (length--)
		value = value << 8 | bytes[length];
	return value;
}

static void identity_store_le(u8 *bytes, u64 value, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		bytes[i] = (u8)(value >> (8 * i));
}

static void identity_sip_block(struct sip_state *state, u64 block)
{
	state->v[3] ^= block;
	identity_sip_rounds(state, 2);
	state->v[0] ^= block;
}

static u64 identity_sip_word(const struct sip_state *state)
{
	return state->v[0] ^ state->v[1] ^ state->v[2] ^ state->v[3];
}

void pcilend_siphash128(const u8 key[16], const void *data, size_t length, u8 hash[16])
{
	const u64 k0 = identity_load_le64(key, 8);
	const u64 k1 = identity_load_le64(key + 8, 8);
	const u8 *in = data;
	size_t left = length;
	struct sip_state state = { {
		k0 ^ 0x736f6d6570736575ULL, /* "somepseudorandomlygeneratedbytes" */
		k1 ^ 0x646f72616e646f6dULL ^ 0xee,
		k0 ^ 0x6c7967656e657261ULL,
		k1 ^ 0x7465646279746573ULL,
	} };

	for (; left >= 8; left -= 8, in += 8)
		identity_sip_block(&state, identity_load_le64(in, 8));
	identity_sip_block(&state, (u64)(length & 0xff) << 56 | identity_load_le64(in, left));
	state.v[2] ^= 0xee;
	identity_sip_rounds(&state, 4);
	identity_store_le(hash, identity_sip_word(&state), 8);
	state.v[1] ^= 0xdd;
	identity_sip_rounds(&state, 4);
	identity_store_le(hash + 8, identity_sip_word(&state), 8);
}

void pcilend_uuid_make(u8 uuid[16], const struct pcilend_identity *identity)
{
	/* Every field at its own place, so that no two identities give the same bytes. */
	u8 bytes[30] = { 0 };

	identity_store_le(bytes, identity->vendor, 2);
	identity_store_le(bytes + 2, identity->device, 2);
	identity_store_le(bytes + 4, identity->subsystem_vendor, 2);
	identity_store_le(bytes + 6, identity->subsystem_device, 2);
	identity_store_le(bytes + 8, identity->class_code & 0xffffff, 4);
	identity_store_le(bytes + 12, identity->lender, 4);
	identity_store_le(bytes + 16, identity->serial, 8);
	if (identity->serial) {
		identity_store_le(bytes + 24, identity->function, 2);
	} else {
		identity_store_le(bytes + 26, identity->segment, 2);
		bytes[28] = identity->bus;
		bytes[29] = identity->devfn;
	}
	pcilend_siphash128(uuid_key, bytes, sizeof(bytes), uuid);
	memcpy(uuid, uuid_prefix, sizeof(uuid_prefix));
	uuid[6] = 0x80 | (uuid[6] & 0x0f);
	uuid[8] = 0x80 | (uuid[8] & 0x3f);
}

bool pcilend_uuid_is_ours(const u8 uuid[16])
{
	return !memcmp(uuid, uuid_prefix, sizeof(uuid_prefix)) && (uuid[6] & 0xf0) == 0x80 &&
	       (uuid[8] & 0xc0) == 0x80;
}

static bool identity_dash_before(int byte)
{
	return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

char *pcilend_uuid_format(const u8 uuid[16], char text[PCILEND_UUID_TEXT_BYTES])
{
	char *out = text;
	int i;

	for (i = 0; i < 16; i++) {
		if (identity_dash_before(i))
			*out++ = '-';
		*out++ = hex_digits[uuid[i] >> 4];
		*out++ = hex_digits[uuid[i] & 0xf];
	}
	*out = '\0';
	return text;
}

int pcilend_uuid_parse(const char *text, u8 uuid[16])
{
	u8 value[16];
	int i;

	for (i = 0; i < 16; i++) {
		int high, low;

		if (identity_dash_before(i) && *text++ != '-')
			return -EINVAL;
		high = identity_hex_value(*text++, true);
		if (high < 0)
			return -EINVAL;
		low = identity_hex_value(*text++, true);
		if (low < 0)
			return -EINVAL;
		value[i] = high << 4 | low;
	}
	if (*text)
		return -EINVAL;
	memcpy(uuid, value, sizeof(value));
	return 0;
}

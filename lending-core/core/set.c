// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Functions that are lent as a set; see set.h. */

#include "pcilend/set.h"

static const u8 no_owner[16];

static bool set_same_owner(const u8 a[16], const u8 b[16])
{
	return !memcmp(a, no_owner, sizeof(no_owner)) || !memcmp(b, no_owner, sizeof(no_owner)) ||
	       !memcmp(a, b, sizeof(no_owner));
}

static int set_compare(const struct pcilend_set_holder *has, const struct pcilend_set_holder *wish)
{
	if (has->node != wish->node || !set_same_owner(has->owner, wish->owner))
		return -EUSERS;
	/* A node has a boot id for each link: those of two links can't be compared. */
	if (has->link != wish->link)
		return -EMLINK;
	return has->boot == wish->boot ? 0 : -EUSERS;
}

static int set_admits(const struct pcilend_set_member *member,
		      const struct pcilend_set_holder *wish)
{
	if (member->state == PCILEND_FUNCTION_QUARANTINED)
		return -EUCLEAN;
	if (member->holder.node)
		return set_compare(&member->holder, wish);
	return member->state == PCILEND_FUNCTION_AVAILABLE ? 0 : -EXDEV;
}

int pcilend_set_admits(const struct pcilend_set_member *member, u32 count, u32 self,
		       const struct pcilend_set_holder *wish, u32 *other)
{
	u32 i;

	for (i = 0; i < count; i++) {
		int error = i == self ? 0 : set_admits(&member[i], wish);

		if (error) {
			*other = i;
			return error;
		}
	}
	return 0;
}

bool pcilend_set_lent(const struct pcilend_set_member *member, u32 count, u32 self)
{
	u32 i;

	for (i = 0; i < count; i++)
		if (i != self && member[i].holder.node)
			return true;
	return false;
}

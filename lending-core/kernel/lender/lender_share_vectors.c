// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts of a shared function's clients on other hosts. An entry of its table of MSI-X gets the
 * message of the client's host, with an address in the alias of that host (slice.h), which leads
 * into the window: one posted write, and no software of this host. The entries are among those that
 * the kernel has allocated for the manager and for clients here, who request theirs; these nobody
 * requests.
 *
 * The table is this host's. What a client can give is an offset and data, for interrupts of its own
 * host, whose interrupt remapping checks them.
 */

#include <linux/msi.h>

#include "lender/lender_share.h"

static int share_vectors_find(struct pcilend_link *link, phys_addr_t *phys)
{
	const struct pcilend_hello *hello = &link->hello;

	return pcilend_aperture_peer(link, hello->interrupt_window, hello->interrupt_offset,
				     PCILEND_MSI_BYTES, phys);
}

/* Can it have interrupts there? */
int pcilend_share_vectors_check(struct pcilend_function *fn, struct pcilend_link *link)
{
	phys_addr_t phys;

	if (!fn->pdev->msix_cap || share_vectors_find(link, &phys))
		return -EOPNOTSUPP;
	return 0;
}

static u64 share_vectors_bit(const struct pcilend_share_client *core)
{
	return BIT_ULL((PCILEND_ALIAS_FIRST - core->alias) / PCILEND_ALIAS_BYTES);
}

/* Once for all clients of its host. */
static int share_vectors_map(struct lender_client *client, const struct pcilend_share_client *core)
{
	struct pcilend_function *fn = client->fn;
	phys_addr_t phys;
	int err;

	static_assert(PCILEND_ALIAS_BYTES == PCILEND_MSI_BYTES);
	if (fn->shared->aliases & share_vectors_bit(core))
		return 0;
	if (pcilend_group_reserves(fn, core->alias, PCILEND_MSI_BYTES))
		return -EOPNOTSUPP;
	err = share_vectors_find(client->link, &phys) ?:
	      pcilend_group_map(fn, core->alias, phys, PCILEND_MSI_BYTES);
	if (!err)
		fn->shared->aliases |= share_vectors_bit(core);
	return err;
}

/* The last client of its host is over. */
void pcilend_share_vectors_unmap(struct pcilend_function *fn,
				 const struct pcilend_share_client *client)
{
	lockdep_assert_held(&fn->lock);
	if (!(fn->shared->aliases & share_vectors_bit(client)))
		return;
	pcilend_group_unmap(fn->group, client->alias, PCILEND_MSI_BYTES);
	fn->shared->aliases &= ~share_vectors_bit(client);
}

static int share_vectors_aim(struct lender_client *client, const struct pcilend_share_client *core,
			     u32 vector, struct msi_msg *message)
{
	struct pcilend_function *fn = client->fn;
	struct pcilend_vectors *vectors = pcilend_local_vectors(fn);
	u32 number = pcilend_share_vector_of(&fn->shared->share, core) + vector;
	int err;

	err = vectors ? pcilend_vectors_aim(vectors, fn->pdev, number, message) : -EOPNOTSUPP;
	if (!err && message)
		client->aimed |= BIT(vector);
	else
		client->aimed &= ~BIT(vector);
	return err;
}

static int share_vectors_set(struct lender_client *client, const struct pcilend_share_client *core,
			     const struct pcilend_msg_vector *in)
{
	u32 vector = le32_to_cpu(in->vector);
	u64 address = core->alias + le32_to_cpu(in->offset);
	struct msi_msg message = {
		.address_lo = lower_32_bits(address),
		.address_hi = upper_32_bits(address),
		.data = le32_to_cpu(in->data),
	};
	int err;

	if (vector >= core->wish.vectors)
		return -ERANGE;
	if (!in->on)
		return share_vectors_aim(client, core, vector, NULL);
	err = share_vectors_map(client, core) ?: share_vectors_aim(client, core, vector, &message);
	if (!err)
		pcilend_device_bus_master(client->fn, true);
	return err;
}

/*
 * pcilend_share_vector - a client on another host wants an interrupt there, or no longer
 *
 * Return: 0; -ESTALE, -EAGAIN as pcilend_share_check(), the latter also while somebody else resets
 * the function, whose table does not decode then; -ERANGE: it has none of that number; -EOPNOTSUPP;
 * or what the IOMMU or the kernel's interrupts say.
 */
int pcilend_share_vector(struct pcilend_function *fn, const struct pcilend_message *msg)
{
	const struct pcilend_msg_vector *in = pcilend_message_payload(msg);
	u32 lease = le32_to_cpu(in->lease);
	struct lender_client *client;
	int err;

	lockdep_assert_held(&fn->lock);
	client = fn->shared ? pcilend_share_client(fn, lease) : NULL;
	if (!client || !client->link)
		return -ESTALE;
	err = pcilend_share_check(&fn->shared->share, msg->peer, msg->boot, lease, NULL);
	if (!err && fn->hidden)
		err = -EAGAIN;
	return err ?: share_vectors_set(client, pcilend_share_find(&fn->shared->share, lease), in);
}

void pcilend_share_vectors_mask(struct lender_client *client, bool masked)
{
	const struct pcilend_share *share = &client->fn->shared->share;
	const struct pcilend_share_client *core = pcilend_share_find(share, client->lease);
	struct pcilend_vectors *vectors = pcilend_local_vectors(client->fn);
	u32 i;

	lockdep_assert_held(&client->fn->lock);
	for (i = 0; core && vectors && i < core->wish.vectors; i++)
		if (client->aimed & BIT(i))
			pcilend_vectors_mask(vectors, pcilend_share_vector_of(share, core) + i,
					     masked);
}

/* None is sent from now on. */
void pcilend_share_vectors_close(struct lender_client *client)
{
	const struct pcilend_share_client *core =
		pcilend_share_find(&client->fn->shared->share, client->lease);
	u32 i;

	lockdep_assert_held(&client->fn->lock);
	for (i = 0; core && i < core->wish.vectors; i++)
		if (client->aimed & BIT(i))
			share_vectors_aim(client, core, i, NULL);
}

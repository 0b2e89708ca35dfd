// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the manager of a shared function is told of its clients: one notice of each, the newest,
 * until the manager has confirmed the client's end.
 */

#include <linux/file.h>
#include <linux/poll.h>
#include <linux/slab.h>

#include "base/base.h"
#include "lease/lease.h"

/* That of this client, or with 0 a free one; NULL. */
static struct pcilend_client_notice *use_share_find(struct pcilend_use *use, u32 lease)
{
	int i;

	lockdep_assert_held(&use->clients_lock);
	for (i = 0; use->clients && i < PCILEND_USE_CLIENTS; i++)
		if (use->clients[i].lease == lease)
			return &use->clients[i];
	return NULL;
}

void pcilend_use_tell_client(struct pcilend_use *use, const struct pcilend_client_notice *notice)
{
	struct pcilend_client_notice *place;

	scoped_guard(mutex, &use->clients_lock) {
		place = use_share_find(use, notice->lease) ?: use_share_find(use, 0);
		if (WARN_ON(!place))
			return;
		if (!place->lease || place->told)
			WRITE_ONCE(use->untold, use->untold + 1);
		*place = *notice;
		place->told = false;
	}
	wake_up_poll(&use->wait, EPOLLIN);
}

/* The client is nobody's any more. */
static void use_share_forget(struct pcilend_use *use, u32 lease, u32 round)
{
	struct pcilend_client_notice *notice;

	guard(mutex)(&use->clients_lock);
	notice = lease ? use_share_find(use, lease) : NULL;
	if (!notice || notice->news != PCILEND_NEWS_GONE || notice->round != round)
		return;
	if (!notice->told)
		WRITE_ONCE(use->untold, use->untold - 1);
	*notice = (struct pcilend_client_notice){ };
}

static int use_share_manages(struct pcilend_use *use, struct netlink_ext_ack *extack)
{
	return use->ops->share ? 0 :
	       pcilend_refuse(extack, -EPERM, "only the manager of a shared function may do this: who has borrowed it");
}

/* Before the first client, whom the holder's side tells of. */
static int use_share_begin(struct pcilend_use *use)
{
	guard(mutex)(&use->clients_lock);
	if (!use->clients)
		use->clients = kcalloc(PCILEND_USE_CLIENTS, sizeof(*use->clients),
				       GFP_KERNEL_ACCOUNT);
	return use->clients ? 0 : -ENOMEM;
}

static int use_share(struct pcilend_use *use, const struct pcilend_share_policy *policy,
		     const struct pcilend_access *nodes, struct netlink_ext_ack *extack)
{
	guard(mutex)(&use->lock);
	return use_share_manages(use, extack) ?: use_share_begin(use) ?:
	       use->ops->share(use->holder, policy, nodes, extack);
}

/**
 * pcilend_use_share - who leases the function alone admits clients, or others, or none any more
 * @fd: a lease fd of the calling process
 */
int pcilend_use_share(int fd, const struct pcilend_share_policy *policy,
		      const struct pcilend_access *nodes, struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	int err;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	err = use_share(lease->private_data, policy, nodes, extack);
	fput(lease);
	return err;
}

static void use_share_next(struct pcilend_use *use, struct pcilend_client_notice *notice)
{
	int i;

	guard(mutex)(&use->clients_lock);
	*notice = (struct pcilend_client_notice){ };
	for (i = 0; use->clients && i < PCILEND_USE_CLIENTS; i++) {
		if (!use->clients[i].lease || use->clients[i].told)
			continue;
		*notice = use->clients[i];
		use->clients[i].told = true;
		WRITE_ONCE(use->untold, use->untold - 1);
		return;
	}
}

/**
 * pcilend_use_next_client - what the manager was not told yet, of one client
 * @notice: set; with lease 0: there is nothing
 */
int pcilend_use_next_client(int fd, struct pcilend_client_notice *notice,
			    struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	int err;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	err = use_share_manages(lease->private_data, extack);
	if (!err)
		use_share_next(lease->private_data, notice);
	fput(lease);
	return err;
}

static int use_share_cleared(struct pcilend_use *use, u32 client, u32 round,
			     struct netlink_ext_ack *extack)
{
	int err;

	guard(mutex)(&use->lock);
	err = use_share_manages(use, extack) ?:
	      use->ops->cleared(use->holder, client, round, extack);
	if (!err)
		use_share_forget(use, client, round);
	return err;
}

/**
 * pcilend_use_cleared - the function uses nothing of that client any more, says its manager
 */
int pcilend_use_cleared(int fd, u32 client, u32 round, struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	int err;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	err = use_share_cleared(lease->private_data, client, round, extack);
	fput(lease);
	return err;
}

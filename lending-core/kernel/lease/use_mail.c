// SPDX-License-Identifier: GPL-2.0-only
/* Mail between a client of a shared function and its manager (mail.h), as their processes ask. */

#include <linux/file.h>
#include <linux/poll.h>

#include "base/base.h"
#include "lease/lease.h"

const char pcilend_use_mail_of_client[] =
	"a client's mail goes to its manager only: name no client";

void pcilend_use_set_mail(struct pcilend_use *use, bool there)
{
	WRITE_ONCE(use->mail, there);
	if (there)
		wake_up_poll(&use->wait, EPOLLIN);
}

static int use_mail_is_for(struct pcilend_use *use, struct netlink_ext_ack *extack)
{
	return use->ops->mail_send ? 0 :
	       pcilend_refuse(extack, -EPERM, "only a client of a shared function and its manager have mail: who leases it alone has none");
}

static int use_mail_send(struct pcilend_use *use, u32 client, const struct pcilend_mail_text *text,
			 struct netlink_ext_ack *extack)
{
	guard(mutex)(&use->lock);
	return use_mail_is_for(use, extack) ?:
	       use->ops->mail_send(use->holder, client, text, extack);
}

/**
 * pcilend_use_send_mail - a client asks its manager, or that answers
 * @fd: a lease fd of the calling process
 */
int pcilend_use_send_mail(int fd, u32 client, const struct pcilend_mail_text *text,
			  struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	int err;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	err = use_mail_send(lease->private_data, client, text, extack);
	fput(lease);
	return err;
}

static int use_mail_next(struct pcilend_use *use, u32 *client, struct pcilend_mail_text *text,
			 struct netlink_ext_ack *extack)
{
	guard(mutex)(&use->lock);
	return use_mail_is_for(use, extack) ?:
	       use->ops->mail_next(use->holder, client, text, extack);
}

/**
 * pcilend_use_next_mail - the manager's next question, or a client's answer
 * @client: set by the manager's to whose it is, else to 0
 * @text: set; with 0 bytes: there is none
 */
int pcilend_use_next_mail(int fd, u32 *client, struct pcilend_mail_text *text,
			  struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	int err;

	*client = 0;
	text->bytes = 0;
	if (IS_ERR(lease))
		return PTR_ERR(lease);
	err = use_mail_next(lease->private_data, client, text, extack);
	fput(lease);
	return err;
}

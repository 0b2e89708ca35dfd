// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts of a client of another host's function: each a vector of this host below the adapter's
 * interrupt domain (link/notify.h), which the lender has the function write to. A vector that was
 * made stays until the client is over, and the function sends none: one that is freed before is a
 * fault of the interrupt remapping. Until then one that nobody wants raises nothing.
 */

#include <linux/eventfd.h>
#include <linux/slab.h>

#include "borrower/remote_client.h"

int remote_vectors_init(struct remote_client *client, u32 vectors)
{
	mutex_init(&client->vectors_lock);
	if (!vectors)
		return 0;
	client->vector = kcalloc(vectors, sizeof(*client->vector), GFP_KERNEL_ACCOUNT);
	client->vectors = vectors;
	return client->vector ? 0 : -ENOMEM;
}

static int vectors_ask(struct remote_client *client, u32 vector, bool on)
{
	const struct pcilend_notify *notify = &client->vector[vector].notify;
	const struct pcilend_msg_vector msg = {
		.id = cpu_to_le32(client->id),
		.lease = cpu_to_le32(client->lease),
		.vector = cpu_to_le32(vector),
		.on = cpu_to_le32(on),
		.offset = cpu_to_le32(notify->offset),
		.data = cpu_to_le32(notify->data),
	};

	return pcilend_channel_request(client->link, PCILEND_MSG_VECTOR, &msg, NULL);
}

static int vectors_open(struct remote_client *client, u32 vector, struct netlink_ext_ack *extack)
{
	struct remote_vector *v = &client->vector[vector];
	char name[32];
	int err;

	if (v->notify.domain)
		return 0;
	snprintf(name, sizeof(name), "pcilend-%x-%u-%u", client->id, client->lease, vector);
	err = pcilend_notify_open(&v->notify, client->link->pdev, name);
	return err ? pcilend_refuse_fmt(extack, err, "this host has no interrupt left for the function (error %d)",
					err) : 0;
}

/* Raises nothing from now on. What the function sends is ignored if its lender does not hear it. */
static void vectors_stop(struct remote_client *client, u32 vector)
{
	struct remote_vector *v = &client->vector[vector];
	struct eventfd_ctx *former = v->notify.domain ? pcilend_notify_raise(&v->notify, NULL) :
							NULL;

	if (v->aimed && !vectors_ask(client, vector, false))
		v->aimed = false;
	if (former)
		eventfd_ctx_put(former);
}

static const char *vectors_why(int error)
{
	switch (error) {
	case -EAGAIN:
		return "it is being reset, or queues from before a lost link remain: try again";
	case -ERANGE:
		return "the function has fewer interrupts than its manager has promised";
	case -EOPNOTSUPP:
		return "the function's interrupts can't go to this host: poll instead";
	case -ESTALE:
		return "the lease is over: close it, and join again";
	case -ETIMEDOUT:
	case -ENETDOWN:
		return "its lender does not answer: see 'pcilend link', and try again";
	default:
		return "its lender can't have this interrupt sent: see its kernel log";
	}
}

static int vectors_start(struct remote_client *client, u32 vector, struct eventfd_ctx *event,
			 struct netlink_ext_ack *extack)
{
	struct remote_vector *v = &client->vector[vector];
	struct eventfd_ctx *former;
	int err;

	err = vectors_open(client, vector, extack);
	if (err)
		return err;
	former = pcilend_notify_raise(&v->notify, event);
	/* Also when it is not known whether the lender has heard it. */
	v->aimed = true;
	err = vectors_ask(client, vector, true);
	if (err) {
		pcilend_notify_raise(&v->notify, former);
		return pcilend_refuse(extack, err, vectors_why(err));
	}
	if (former)
		eventfd_ctx_put(former);
	return 0;
}

int remote_vectors_set(void *holder, u32 vector, struct eventfd_ctx *event,
		       struct netlink_ext_ack *extack)
{
	struct remote_client *client = holder;
	int err = remote_client_check(client, extack);

	if (err)
		return err;
	guard(mutex)(&client->vectors_lock);
	if (vector >= client->vectors)
		return pcilend_refuse_fmt(extack, -ERANGE, "it has joined with %u interrupts: name one from 0 on",
					  client->vectors);
	if (event)
		return vectors_start(client, vector, event, extack);
	vectors_stop(client, vector);
	return 0;
}

void remote_vectors_end(struct remote_client *client)
{
	struct eventfd_ctx *event;
	u32 i;

	guard(mutex)(&client->vectors_lock);
	for (i = 0; i < client->vectors; i++) {
		event = pcilend_notify_close(&client->vector[i].notify);
		if (event)
			eventfd_ctx_put(event);
	}
	client->vectors = 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * What lenders say of the functions that they offer to this host, and of those that it has.
 */

#include "borrower/borrower.h"

/* Has the lender stopped the function after lease @lease of ours, as this notice tells? */
static bool notice_tells_stopped(const struct pcilend_msg_function *info, u32 lease)
{
	return le32_to_cpu(info->borrower) != pcilend_node || le32_to_cpu(info->lease) != lease;
}

/* The lease's link is lost, but the lender is there: it is asked over another one. */
static void notice_return_again(struct remote *r)
{
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_wq, &r->return_work))
		put_device(&r->pub.dev);
}

/* What a notice means for our lease. Sequence numbers tell notices from before the grant. */
void remote_compare_lease(struct remote *r, struct pcilend_link *link,
			  const struct pcilend_msg_function *info, u32 sequence)
{
	u32 told = le32_to_cpu(info->borrower) == pcilend_node ? le32_to_cpu(info->lease) : 0;
	bool settled = false;
	bool lost = false, again = false;
	u32 orphan = 0;

	mutex_lock(&r->lock);
	if (r->link != link) {
		/* Only a lease's own link tells of it, in order. */
		again = r->state == REMOTE_RETURNING;
		orphan = told != r->lease ? told : 0;
		mutex_unlock(&r->lock);
		goto out;
	}
	switch (r->state) {
	case REMOTE_IDLE:
		orphan = told;
		break;
	case REMOTE_BORROWING:
		break;
	case REMOTE_HELD:
		lost = notice_tells_stopped(info, r->lease) && (s32)(sequence - r->granted) > 0;
		break;
	case REMOTE_LOST:
		r->fenced |= notice_tells_stopped(info, r->lease);
		break;
	case REMOTE_RETURNING:
		settled = notice_tells_stopped(info, r->lease);
		if (!settled && info->state == PCILEND_FUNCTION_BORROWED)
			orphan = r->lease;
		break;
	}
	mutex_unlock(&r->lock);

out:
	if (again)
		notice_return_again(r);
	if (lost)
		remote_lost(r, PCILEND_LOST_REVOKED, true);
	if (settled)
		remote_settled(r);
	if (orphan)
		remote_return_async(r, link, orphan);
}

static void notice_withdraw(struct pcilend_link *link, const struct pcilend_msg_id *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_lose_path(r, link, PCILEND_LOST_GONE, true);
	remote_put(r);
}

static void notice_lost(const struct pcilend_msg_lease *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));
	bool ours;

	if (!r)
		return;
	mutex_lock(&r->lock);
	ours = r->lease == le32_to_cpu(msg->lease);
	if (r->state == REMOTE_BORROWING)
		r->lost_early = le32_to_cpu(msg->lease);
	mutex_unlock(&r->lock);
	if (ours)
		remote_lost(r, le32_to_cpu(msg->reason), true);
	remote_put(r);
}

static void notice_was_reset(const struct pcilend_msg_lease *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_was_reset(r, le32_to_cpu(msg->lease));
	remote_put(r);
}

/* One that nobody waits for, as when the function is being returned, is no news. */
static void notice_intx_raised(struct pcilend_link *link, const struct pcilend_msg_lease *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	mutex_lock(&r->lock);
	if (r->state == REMOTE_HELD && r->lease == le32_to_cpu(msg->lease) && r->link == link &&
	    r->intx)
		pcilend_virtual_intx_raised(r->intx);
	mutex_unlock(&r->lock);
	remote_put(r);
}

/* The same of vectors. */
static void notice_msi_raised(struct pcilend_link *link, const struct pcilend_msg_msi_raised *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	mutex_lock(&r->lock);
	if (r->state == REMOTE_HELD && r->lease == le32_to_cpu(msg->lease) && r->link == link &&
	    r->relay)
		pcilend_virtual_relay_raised(r->relay, le64_to_cpu(msg->vectors));
	mutex_unlock(&r->lock);
	remote_put(r);
}

static void notice_recall(const struct pcilend_msg_recall *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_recalled(r, le32_to_cpu(msg->lease), le32_to_cpu(msg->grace_ms));
	remote_put(r);
}

static void notice_unreached(const struct pcilend_msg_unreached *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_unreached(r, le32_to_cpu(msg->lease), le32_to_cpu(msg->target));
	remote_put(r);
}

static void notice_connected(struct pcilend_link *link, const struct pcilend_msg_connected *msg)
{
	pcilend_link_set_peer_connected(link, le32_to_cpu(msg->connected));
	pcilend_borrower_resync(link);
}

/* Called in order of arrival, one at a time per link, in process context. */
void pcilend_borrower_notice(struct pcilend_link *link, const struct pcilend_message *msg)
{
	u16 type = le16_to_cpu(pcilend_message_header(msg)->type);
	const void *payload = pcilend_message_payload(msg);

	if (type == PCILEND_MSG_CONNECTED) {
		notice_connected(link, payload);
		return;
	}
	/* All others begin with the id of a function, which must be one of the sender's. */
	if (pcilend_id_node(le32_to_cpu(((const struct pcilend_msg_id *)payload)->id)) !=
	    msg->peer) {
		pcilend_channel_bad(link, le32_to_cpu(pcilend_message_header(msg)->sequence),
				    "it names a function of another node");
		return;
	}
	if ((type == PCILEND_MSG_LOST || type == PCILEND_MSG_WAS_RESET ||
	     type == PCILEND_MSG_RECALL || type == PCILEND_MSG_READMITTED ||
	     type == PCILEND_MSG_MAILED) &&
	    pcilend_client_notice(link, type, payload))
		return;
	switch (type) {
	case PCILEND_MSG_FUNCTION:
		remote_told(link, msg);
		break;
	case PCILEND_MSG_WITHDRAW:
		notice_withdraw(link, payload);
		break;
	case PCILEND_MSG_LOST:
		notice_lost(payload);
		break;
	case PCILEND_MSG_WAS_RESET:
		notice_was_reset(payload);
		break;
	case PCILEND_MSG_INTX_RAISED:
		notice_intx_raised(link, payload);
		break;
	case PCILEND_MSG_RECALL:
		notice_recall(payload);
		break;
	case PCILEND_MSG_UNREACHED:
		notice_unreached(payload);
		break;
	}
}

/* A lender speaks of a function of its own that is borrowed here. */
void pcilend_borrower_request(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_msi_raised *in = pcilend_message_payload(msg);
	bool own = pcilend_id_node(le32_to_cpu(in->id)) == msg->peer;

	if (own)
		notice_msi_raised(link, in);
	pcilend_channel_reply(link, msg, own ? 0 : -EINVAL, NULL);
}

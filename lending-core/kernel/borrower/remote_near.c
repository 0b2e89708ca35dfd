// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory beside a leased function of another host (remote_target.h): its lender makes a segment of
 * it, which the process connects and maps as it would any of that host's.
 */

#include "borrower/borrower.h"
#include "borrower/remote_target.h"
#include "lease/lease.h"
#include "pcilend/identity.h"

/* A text that is made here is short (pcilend_refuse_fmt()). */
static int near_refuse(struct pcilend_remote *remote, int error, struct netlink_ext_ack *extack)
{
	u32 lender = pcilend_id_node(remote->id);

	switch (error) {
	case -EACCES:
		return pcilend_refuse_fmt(extack, error, "node %u gives none for this function: pcilend available --near there",
					  lender);
	case -ENOSPC:
		return pcilend_refuse_fmt(extack, error, "node %u gives no more for it: pcilend available --near there",
					  lender);
	case -EOPNOTSUPP:
		return pcilend_refuse_fmt(extack, error, "node %u lends it without an IOMMU, or its adapter has none",
					  lender);
	case -ESTALE:
		return pcilend_refuse(extack, error, "the lease is over: close it, and borrow the function again");
	case -ETIMEDOUT:
	case -ENETDOWN:
	case -EHOSTUNREACH:
		return pcilend_refuse_fmt(extack, error, "the function's lender, node %u, does not answer: see 'pcilend link'",
					  lender);
	default:
		return pcilend_refuse_fmt(extack, error, "the lender, node %u, has no memory for it (error %d)",
					  lender, error);
	}
}

/* What is made for an answer that does not come ends with the lease. */
int remote_near_get(struct pcilend_remote *remote, u32 lease, struct pcilend_use_near *near,
		    struct netlink_ext_ack *extack)
{
	const struct pcilend_msg_near msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(lease),
		.size = cpu_to_le64(near->size),
	};
	struct pcilend_link *link = remote_link(to_remote(remote));
	struct pcilend_answer answer;
	int err;

	strscpy(near->adapter, pci_name(link->pdev), sizeof(near->adapter));
	err = pcilend_channel_request(link, PCILEND_MSG_NEAR, &msg, &answer);
	pcilend_link_put(link);
	if (err)
		return near_refuse(remote, err, extack);
	near->segment = le32_to_cpu(((const struct pcilend_msg_id *)answer.payload)->id);
	if (pcilend_id_node(near->segment) != pcilend_id_node(remote->id))
		return near_refuse(remote, -EPROTO, extack);
	return 0;
}

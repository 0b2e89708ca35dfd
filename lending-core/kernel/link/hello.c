// SPDX-License-Identifier: GPL-2.0-only
/*
 * HELLO: right after a channel has opened, both hosts tell each other what they see of the link
 * and where they can be reached. A link is up only once both know, and all fits; an aperture that
 * was planned on wrong guesses is planned anew.
 */

#include "link/session.h"

#define REPEAT_MS 1000

static void hello_fill(struct pcilend_link *link, struct pcilend_msg_hello *msg)
{
	const struct pcilend_aperture *ap = &link->aperture;
	const struct pcilend_layout *layout = &ap->layout;
	const struct pcilend_layout_region *interrupts = &layout->interrupts;
	unsigned int i;

	memset(msg, 0, sizeof(*msg));
	msg->version = cpu_to_le32(PCILEND_WIRE_VERSION);
	msg->lease_ms = cpu_to_le32(pcilend_lease_ms);
	msg->interrupt_window = cpu_to_le32(PCILEND_WIRE_NO_WINDOW);
	if (interrupts->size) {
		msg->interrupt_window = cpu_to_le32(interrupts->window);
		msg->interrupt_offset = cpu_to_le64(interrupts->iova -
						    layout->window[interrupts->window].translation);
	}
	msg->hole = cpu_to_le64(link->hole);
	msg->dma_limit = cpu_to_le64(layout->dma_limit);
	msg->windows = cpu_to_le32(ap->windows);
	for (i = 0; i < ap->windows; i++)
		msg->window[i] = cpu_to_le64(ap->window[i].size);
}

/* The handshake: says it, and again until it is acknowledged. */
void pcilend_hello_say(struct pcilend_link *link)
{
	struct pcilend_msg_hello msg;
	u64 now = pcilend_now();

	if (READ_ONCE(link->hello.taken) || now - link->hello.said < REPEAT_MS)
		return;
	link->hello.said = now;
	hello_fill(link, &msg);
	pcilend_channel_request_async(link, PCILEND_MSG_HELLO, &msg);
}

/* The peer has taken ours. */
void pcilend_hello_taken(struct pcilend_link *link)
{
	WRITE_ONCE(link->hello.taken, true);
	pcilend_handshake_event(link);
}

/* The peer's. It says the same as long as a session lasts. */
void pcilend_hello_heard(struct pcilend_link *link, const struct pcilend_message *message)
{
	const struct pcilend_msg_hello *msg = pcilend_message_payload(message);
	struct pcilend_hello *hello = &link->hello;
	unsigned int i;

	spin_lock(&link->state_lock);
	if (!hello->heard) {
		memset(&hello->peer, 0, sizeof(hello->peer));
		hello->peer.windows = le32_to_cpu(msg->windows);
		for (i = 0; i < hello->peer.windows; i++)
			hello->peer.window[i].size = le64_to_cpu(msg->window[i]);
		hello->peer.hole = le64_to_cpu(msg->hole);
		hello->needs = le32_to_cpu(msg->needs);
		hello->dma_limit = le64_to_cpu(msg->dma_limit);
		hello->interrupt_window = le32_to_cpu(msg->interrupt_window);
		hello->interrupt_offset = le64_to_cpu(msg->interrupt_offset);
		hello->heard = true;
	}
	spin_unlock(&link->state_lock);
	pcilend_handshake_event(link);
}

bool pcilend_hello_is_heard(struct pcilend_link *link)
{
	bool heard;

	spin_lock(&link->state_lock);
	heard = link->hello.heard;
	spin_unlock(&link->state_lock);
	return heard;
}

/* A new session: what is known of the peer stays, for the planner, until it says otherwise. */
void pcilend_hello_reset(struct pcilend_link *link)
{
	spin_lock(&link->state_lock);
	link->hello.heard = false;
	link->hello.taken = false;
	spin_unlock(&link->state_lock);
	link->hello.said = pcilend_now() - REPEAT_MS;
}

/*
 * pcilend_hello_judge - may the link be used?
 * @why: set unless it may
 *
 * Return: 0; -EAGAIN: not yet; -ERANGE: not before this host has planned its aperture anew; or a
 * refusal.
 */
int pcilend_hello_judge(struct pcilend_link *link, char *why, size_t bytes)
{
	const struct pcilend_hello *hello = &link->hello;
	phys_addr_t phys;
	int err;

	*why = '\0';
	if (!pcilend_hello_is_heard(link) || !READ_ONCE(hello->taken))
		return -EAGAIN;
	if (hello->needs) {
		snprintf(why, bytes,
			 "the peer needs features %#x, unknown here: use the same release of pcilend on both",
			 hello->needs);
		return -EOPNOTSUPP;
	}
	err = pcilend_layout_reached(&link->aperture.layout, &hello->peer, why, bytes);
	if (err)
		return err;
	if (link->hole && hello->dma_limit > link->hole) {
		snprintf(why, bytes,
			 "the peer's DMA area ends %llu KiB inside this host's PCI hole at %#llx: it has to make it smaller",
			 (hello->dma_limit - link->hole) >> 10, link->hole);
		return -EAGAIN;
	}
	if (hello->interrupt_window != PCILEND_WIRE_NO_WINDOW &&
	    pcilend_aperture_peer(link, hello->interrupt_window, hello->interrupt_offset,
				  PCILEND_MSI_BYTES, &phys)) {
		snprintf(why, bytes,
			 "the peer's interrupts are at %#llx of memory window %u, which this host does not see: give both NTB adapters windows of the same size",
			 hello->interrupt_offset, hello->interrupt_window);
		return -ENOSPC;
	}
	return 0;
}

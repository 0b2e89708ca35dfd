/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a link and its session with the peer are made, kept up and ended: shared by the files of
 * link/. But for what says otherwise, the handshake calls all of this, so one at a time for a
 * link.
 */
#ifndef PCILEND_SESSION_H
#define PCILEND_SESSION_H

#include "link/link.h"

/* As given to pcilend_links_register(). */
extern const struct pcilend_lender_ops *pcilend_link_lender;
extern const struct pcilend_borrower_ops *pcilend_link_borrower;
extern const struct pcilend_segment_ops *pcilend_link_segments;

/*
 * Who vouches, to this boot of ours, for what stands in our area; 0: nobody. What is read after it
 * was written before.
 */
static inline u64 pcilend_area_writer(struct pcilend_link *link)
{
	u64 writer = le64_to_cpu(READ_ONCE(link->area->writer_boot));

	/* Written in the other order. */
	dma_rmb();
	if (le64_to_cpu(READ_ONCE(link->area->reader_boot)) != link->boot)
		writer = 0;
	dma_rmb();
	return writer;
}

/* link.c */
void pcilend_link_set_state(struct pcilend_link *link, enum pcilend_link_state state,
			    const char *reason);
void pcilend_link_set_trusted(struct pcilend_link *link);
int pcilend_link_place_area(struct pcilend_link *link, u64 limit);
void pcilend_link_drop_former_area(struct pcilend_link *link);
int pcilend_link_enable(struct pcilend_link *link);
bool pcilend_link_is_isolated(struct pcilend_link *link);
#define PCILEND_NOT_ISOLATED \
	"its IOMMU group has other devices: use another slot, or load with unsafe_groups=1"
/* Any context. */
bool pcilend_link_adapter_is_up(struct pcilend_link *link);
void pcilend_link_kick_peer(struct pcilend_link *link);
void pcilend_link_listen(struct pcilend_link *link);
void pcilend_link_heard(struct pcilend_link *link, u32 messages);

/* handshake.c */
void pcilend_handshake_init(struct pcilend_link *link);
void pcilend_handshake_start(struct pcilend_link *link);
void pcilend_handshake_stop(struct pcilend_link *link);
void pcilend_handshake_event(struct pcilend_link *link);
void pcilend_link_follow_trail(struct pcilend_link *link);
/* From work items of the channel. */
void pcilend_link_restart(struct pcilend_link *link);

/* hello.c */
void pcilend_hello_say(struct pcilend_link *link);
void pcilend_hello_taken(struct pcilend_link *link);
void pcilend_hello_heard(struct pcilend_link *link, const struct pcilend_message *message);
bool pcilend_hello_is_heard(struct pcilend_link *link);
void pcilend_hello_reset(struct pcilend_link *link);
int pcilend_hello_judge(struct pcilend_link *link, char *why, size_t bytes);

/* loss.c; the first three in any context. */
void pcilend_link_event(struct pcilend_link *link);
void pcilend_link_lost(struct pcilend_link *link);
void pcilend_link_lost_by_peer(struct pcilend_link *link);
bool pcilend_link_take_lost(struct pcilend_link *link);
void pcilend_link_met(struct pcilend_link *link);

/* trust.c */
bool pcilend_link_is_misplaced(struct pcilend_link *link, u32 id, char *why, size_t bytes);
int pcilend_link_earn_trust(struct pcilend_link *link, char *why, size_t bytes);
int pcilend_link_vouch(u32 node, const struct pcilend_msg_vouch *msg);

/* aperture.c */
int pcilend_aperture_init(struct pcilend_link *link);
int pcilend_aperture_open(struct pcilend_link *link, char *why, size_t bytes);
bool pcilend_aperture_replan(struct pcilend_link *link);
void pcilend_aperture_close(struct pcilend_link *link);
void pcilend_aperture_exit(struct pcilend_link *link);

/* channel.c, channel_receive.c, channel_poll.c */
void pcilend_channel_init(struct pcilend_link *link);
int pcilend_channel_open(struct pcilend_link *link, u32 window, u64 offset, const char **why);
void pcilend_channel_suspend(struct pcilend_link *link);
void pcilend_channel_resume(struct pcilend_link *link);
void pcilend_channel_settle(struct pcilend_link *link);
void pcilend_channel_close(struct pcilend_link *link);
void pcilend_channel_beat(struct pcilend_link *link);
void pcilend_channel_look(struct pcilend_link *link);
void pcilend_channel_go_on(struct pcilend_link *link);
void pcilend_channel_set_polling(struct pcilend_link *link, bool up);

#endif /* PCILEND_SESSION_H */

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Mail between clients of a shared function and its manager; see mail.h. */

#include "pcilend/share.h"

static int mail_refuse(int error, const char *text, const char **why)
{
	if (why)
		*why = text;
	return error;
}

static bool mail_fits(const struct pcilend_mail_text *text)
{
	return text->bytes && text->bytes <= PCILEND_MAIL_BYTES;
}

static int mail_refuse_size(const char **why)
{
	return mail_refuse(-ERANGE, "mail has 1 to 200 bytes: send less at once", why);
}

static struct pcilend_share_client *mail_client(struct pcilend_share *share, u32 lease)
{
	return (struct pcilend_share_client *)pcilend_share_find(share, lease);
}

int pcilend_mail_ask(struct pcilend_share *share, u32 node, u64 boot, u32 lease, u32 number,
		     const struct pcilend_mail_text *question, const char **why)
{
	int error = pcilend_share_check(share, node, boot, lease, why);
	struct pcilend_mail *mail;

	if (error)
		return error;
	if (!number || !mail_fits(question))
		return mail_refuse_size(why);
	mail = &mail_client(share, lease)->mail;
	if (mail->state != PCILEND_MAIL_NONE && mail->number == number)
		return -EALREADY;
	if (mail->state == PCILEND_MAIL_ASKED || mail->state == PCILEND_MAIL_TAKEN)
		return mail_refuse(-EBUSY, "a question of this client is under way: wait for the answer",
				   why);
	*mail = (struct pcilend_mail){
		.state = PCILEND_MAIL_ASKED,
		.number = number,
		.order = ++share->asked,
		.text = *question,
	};
	return 0;
}

/* That which was asked first; NULL: there is none. */
static const struct pcilend_share_client *mail_first(const struct pcilend_share *share)
{
	const struct pcilend_share_client *first = NULL;
	u32 i;

	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		const struct pcilend_share_client *client = &share->client[i];

		if (client->mail.state == PCILEND_MAIL_ASKED &&
		    (!first || client->mail.order < first->mail.order))
			first = client;
	}
	return first;
}

bool pcilend_mail_waits(const struct pcilend_share *share)
{
	return mail_first(share);
}

u32 pcilend_mail_next(struct pcilend_share *share, struct pcilend_mail_text *question)
{
	struct pcilend_share_client *client = (struct pcilend_share_client *)mail_first(share);

	if (!client)
		return 0;
	client->mail.state = PCILEND_MAIL_TAKEN;
	*question = client->mail.text;
	return client->lease;
}

int pcilend_mail_answer(struct pcilend_share *share, u32 client,
			const struct pcilend_mail_text *answer, const char **why)
{
	struct pcilend_share_client *asker = mail_client(share, client);

	if (!asker)
		return mail_refuse(-ENOENT,
				   "no client has this lease: answer whom mail-next has named",
				   why);
	if (!mail_fits(answer))
		return mail_refuse_size(why);
	if (asker->mail.state == PCILEND_MAIL_ASKED)
		return mail_refuse(-EAGAIN, "its question was not taken yet: take it first (mail-next)",
				   why);
	if (asker->mail.state != PCILEND_MAIL_TAKEN)
		return mail_refuse(-EAGAIN,
				   "this client waits for no answer: it has one, or its question went with its link or its end",
				   why);
	asker->mail.state = PCILEND_MAIL_ANSWERED;
	asker->mail.text = *answer;
	return 0;
}

const struct pcilend_mail_text *pcilend_mail_answered(const struct pcilend_share *share,
						      u32 client, u32 number)
{
	const struct pcilend_share_client *asker = pcilend_share_find(share, client);

	if (!asker || asker->mail.state != PCILEND_MAIL_ANSWERED || asker->mail.number != number)
		return NULL;
	return &asker->mail.text;
}

void pcilend_mail_drop(struct pcilend_mail *mail)
{
	*mail = (struct pcilend_mail){ };
}

// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/mail.h"

#include <gtest/gtest.h>

#include <string>

#include "share_world.h"

namespace {

using namespace share_world;  // NOLINT: the tests are about just this

pcilend_mail_text Text(const std::string& text) {
  pcilend_mail_text made = {};
  made.bytes = static_cast<u32>(text.size());
  std::memcpy(made.text, text.data(), std::min(text.size(), sizeof made.text));
  return made;
}

// Three clients: two of node 2, one of node 3.
class MailTest : public ::testing::Test, public World {
 public:
  MailTest() {
    EXPECT_EQ(Manage(), 0);
    EXPECT_EQ(SetPolicy(Policy()), 0);
    for (auto [lease, node] : {std::pair{&a_, 2}, std::pair{&b_, 2}, std::pair{&c_, 3}}) {
      EXPECT_EQ(Join(static_cast<u32>(node), 100), 0);
      *lease = result().lease;
      EXPECT_EQ(Of(PCILEND_SHARE_MAPPED, *lease), 0);
    }
  }
  int Ask(u32 lease, u32 number, const std::string& text, u32 node = 2) {
    const pcilend_mail_text question = Text(text);
    why_ = "";
    return pcilend_mail_ask(&share(), node, 100, lease, number, &question, &why_);
  }
  // "11 text", of whom the manager takes; empty: nobody.
  std::string Next() {
    pcilend_mail_text question = {};
    const u32 lease = pcilend_mail_next(&share(), &question);
    if (lease == 0) return "";
    return std::to_string(lease) + " " + Content(question);
  }
  int Tell(u32 lease, const std::string& text) {
    const pcilend_mail_text answer = Text(text);
    why_ = "";
    return pcilend_mail_answer(&share(), lease, &answer, &why_);
  }
  std::string Answer(u32 lease, u32 number) {
    const pcilend_mail_text* answer = pcilend_mail_answered(&share(), lease, number);
    return answer != nullptr ? Content(*answer) : "none";
  }
  static std::string Content(const pcilend_mail_text& text) {
    return {reinterpret_cast<const char*>(text.text), text.bytes};
  }

  u32 a_ = 0, b_ = 0, c_ = 0;
  const char* why_ = nullptr;
};

TEST_F(MailTest, AQuestionAndItsAnswer) {
  EXPECT_FALSE(pcilend_mail_waits(&share()));
  EXPECT_EQ(Next(), "");
  ASSERT_EQ(Ask(a_, 1, "a queue?"), 0);
  EXPECT_TRUE(pcilend_mail_waits(&share()));
  EXPECT_EQ(Tell(a_, "early"), -EAGAIN);
  EXPECT_STREQ(why_, "its question was not taken yet: take it first (mail-next)");
  EXPECT_EQ(Next(), std::to_string(a_) + " a queue?");
  EXPECT_FALSE(pcilend_mail_waits(&share()));
  EXPECT_EQ(Answer(a_, 1), "none");
  ASSERT_EQ(Tell(a_, "number 5"), 0);
  EXPECT_EQ(Answer(a_, 1), "number 5");
  EXPECT_EQ(Answer(a_, 2), "none") << "of another question";
  EXPECT_EQ(Tell(a_, "number 6"), -EAGAIN) << "answered once";
  EXPECT_EQ(Answer(a_, 1), "number 5");
}

TEST_F(MailTest, OneQuestionOfAClientIsUnderWay) {
  ASSERT_EQ(Ask(a_, 1, "x"), 0);
  EXPECT_EQ(Ask(a_, 2, "y"), -EBUSY);
  EXPECT_STREQ(why_, "a question of this client is under way: wait for the answer");
  EXPECT_EQ(Ask(a_, 1, "x"), -EALREADY) << "asked again: not told twice";
  Next();
  EXPECT_EQ(Ask(a_, 1, "x"), -EALREADY);
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(Ask(a_, 2, "y"), -EBUSY);
  ASSERT_EQ(Tell(a_, "z"), 0);
  EXPECT_EQ(Ask(a_, 1, "x"), -EALREADY) << "it has not heard the answer";
  EXPECT_EQ(Answer(a_, 1), "z");
  EXPECT_EQ(Ask(a_, 2, "y"), 0) << "who asks anew has it";
  EXPECT_EQ(Answer(a_, 1), "none");
  EXPECT_EQ(Next(), std::to_string(a_) + " y");
}

TEST_F(MailTest, WhoAskedFirstIsHeardFirst) {
  ASSERT_EQ(Ask(c_, 7, "c", 3), 0);
  ASSERT_EQ(Ask(a_, 1, "a"), 0);
  ASSERT_EQ(Ask(b_, 1, "b"), 0);
  EXPECT_EQ(Next(), std::to_string(c_) + " c");
  ASSERT_EQ(Tell(c_, "to c"), 0);
  ASSERT_EQ(Ask(c_, 8, "c again", 3), 0);
  EXPECT_EQ(Next(), std::to_string(a_) + " a");
  EXPECT_EQ(Next(), std::to_string(b_) + " b");
  EXPECT_EQ(Next(), std::to_string(c_) + " c again");
  ASSERT_EQ(Tell(b_, "to b"), 0);
  EXPECT_EQ(Answer(a_, 1), "none");
  EXPECT_EQ(Answer(b_, 1), "to b");
}

TEST_F(MailTest, NobodyElseAsksAndNoStrangerIsAnswered) {
  EXPECT_EQ(Ask(a_, 1, "x", 3), -ESTALE) << "another host's";
  EXPECT_EQ(Ask(99, 1, "x"), -ESTALE);
  EXPECT_FALSE(pcilend_mail_waits(&share()));
  EXPECT_EQ(Tell(99, "x"), -ENOENT);
  EXPECT_STREQ(why_, "no client has this lease: answer whom mail-next has named");
  EXPECT_EQ(Tell(kManagerLease, "x"), -ENOENT);
  EXPECT_EQ(Tell(a_, "x"), -EAGAIN) << "it has asked nothing";
}

TEST_F(MailTest, ItHasASize) {
  const std::string most(PCILEND_MAIL_BYTES, 'm');
  EXPECT_EQ(Ask(a_, 1, ""), -ERANGE);
  EXPECT_EQ(Ask(a_, 1, most + "m"), -ERANGE);
  EXPECT_STREQ(why_, "mail has 1 to 200 bytes: send less at once");
  EXPECT_EQ(Ask(a_, 0, "x"), -ERANGE) << "no number";
  ASSERT_EQ(Ask(a_, 1, most), 0);
  EXPECT_EQ(Next(), std::to_string(a_) + " " + most);
  EXPECT_EQ(Tell(a_, ""), -ERANGE);
  EXPECT_EQ(Tell(a_, most + "m"), -ERANGE);
  ASSERT_EQ(Tell(a_, most), 0) << "the refusals have changed nothing";
}

TEST_F(MailTest, ALostLinkDropsItAndItIsAskedAnew) {
  ASSERT_EQ(Ask(a_, 1, "taken"), 0);
  Next();
  ASSERT_EQ(Ask(b_, 1, "waits"), 0);
  ASSERT_EQ(Ask(c_, 1, "another's", 3), 0);
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_LOST, 2, 100), 0);
  EXPECT_EQ(Tell(a_, "late"), -EAGAIN);
  EXPECT_STREQ(why_,
               "this client waits for no answer: it has one, or its question went with its link or "
               "its end");
  EXPECT_EQ(Next(), std::to_string(c_) + " another's") << "b's is gone";
  EXPECT_EQ(Ask(a_, 1, "taken"), -EAGAIN) << "not before its queues are deleted";
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_UP, 2, 100), 0);
  for (const u32 lease : {a_, b_}) ASSERT_EQ(Cleared(lease, Find(lease)->round), 0);
  ASSERT_EQ(Ask(a_, 1, "taken"), 0) << "told again, though with the same number";
  EXPECT_EQ(Next(), std::to_string(a_) + " taken");
  ASSERT_EQ(Tell(a_, "now"), 0);
  EXPECT_EQ(Answer(a_, 1), "now");
}

TEST_F(MailTest, AnAnswerGoesWithTheLinkToo) {
  ASSERT_EQ(Ask(a_, 1, "x"), 0);
  Next();
  ASSERT_EQ(Tell(a_, "about what is deleted now"), 0);
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_LOST, 2, 100), 0);
  EXPECT_EQ(Answer(a_, 1), "none");
}

TEST_F(MailTest, AClientsEndTakesItsQuestion) {
  ASSERT_EQ(Ask(a_, 1, "x"), 0);
  ASSERT_EQ(Ask(b_, 1, "y"), 0);
  Next();
  ASSERT_EQ(Peer(PCILEND_SHARE_RETURN, 2, 100, a_), 0);
  ASSERT_EQ(Peer(PCILEND_SHARE_RETURN, 2, 100, b_), 0);
  EXPECT_FALSE(pcilend_mail_waits(&share()));
  EXPECT_EQ(Next(), "");
  EXPECT_EQ(Tell(a_, "late"), -EAGAIN);
  EXPECT_EQ(Ask(a_, 2, "x"), -ESTALE);
}

TEST_F(MailTest, TheManagersEndTakesAll) {
  ASSERT_EQ(Ask(a_, 1, "x"), 0);
  ASSERT_EQ(Peer(PCILEND_SHARE_PEER_DEAD, kManager, kManagerBoot), 0);
  EXPECT_EQ(Ask(b_, 1, "y"), -ESTALE) << "it is being fenced";
  pcilend_share_event fenced = {};
  fenced.type = PCILEND_SHARE_FENCED;
  ASSERT_EQ(Apply(fenced), 0);
  EXPECT_FALSE(pcilend_mail_waits(&share()));
  ASSERT_EQ(Manage(), 0);
  ASSERT_EQ(SetPolicy(Policy()), 0);
  EXPECT_EQ(Next(), "") << "nothing of the former ones";
}

}  // namespace

// SPDX-License-Identifier: GPL-2.0-or-later
// Mail between the clients of a shared function and its manager.
#include "scenarios/lending/shared_lease.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;
using testing::HasSubstr;

/*
 *   host1 (lender): manager <── "one" ── client        host2: client ── "one" ══ NTB ══> manager
 *                           ── "one to N" ──>
 */
TEST_F(SharedLease, MailGoesBothWays) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  size_t answered = 0;
  for (int number : {1, 2}) {
    SCOPED_TRACE(number);
    const lab::Host& host = lab_->host(number);
    ASSERT_OK(await_state(host, id_, "borrowed"));
    auto client = ShareUser::start(host, "join", id_, "ask one misuse ask two");
    ASSERT_OK(client);
    ASSERT_OK(client->end());
    const auto lease = client->said("joined")->at("lease").get<uint32_t>();
    EXPECT_EQ(client->times("ask"), 2U);
    EXPECT_EQ(client->said("ask")->at("answer"), fmt::format("two to {}", lease));
    const json misuse = *client->said("misuse");
    const std::pair<const char*, const char*> refusals[] = {
        {"too much", "mail of 201 bytes: give 1 to 200"},
        {"nothing", "mail of 0 bytes: give 1 to 200"},
        {"to another client", "to its manager only"},
        {"a second one", "a question is under way"},
        {"before the answer is taken", "its answer was not taken"},
    };
    for (const auto& [what, text] : refusals)
      EXPECT_THAT(misuse.at(what).get<std::string>(), HasSubstr(text)) << what;
    EXPECT_EQ(misuse.at("polled"), true);
    EXPECT_EQ(misuse.at("polled then"), false);
    EXPECT_EQ(misuse.at("answer"), fmt::format("{} to {}", std::string(100, 'm'), lease));
    ASSERT_OK(keeper->await("answered", answered += 3));
    const json said = *keeper->said("answered");
    EXPECT_EQ(said.at("answer"), "not refused");
    EXPECT_THAT(said.at("twice").get<std::string>(), HasSubstr("this client waits for no answer"));
    EXPECT_THAT(said.at("a stranger").get<std::string>(), HasSubstr("no client has this lease"));
    EXPECT_THAT(said.at("nobody").get<std::string>(), HasSubstr("name the client"));
  }
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   host2: client asks ══╳══ NTB ══ manager, which has not answered: asked anew when it is back
 *   host1: client asks, and is killed: its question goes with it
 */
TEST_F(SharedLease, AQuestionOutlivesItsLinkAndNotItsClient) {
  auto keeper = manager("2", "hold /run/again");
  ASSERT_OK(keeper);
  ASSERT_OK(await_state(lab_->host(2), id_, "borrowed"));
  auto a = ShareUser::start(lab_->host(2), "join", id_, "ask far map 4096 copy");
  ASSERT_OK(a);
  ASSERT_OK(keeper->await("asked"));
  auto b = ShareUser::start(lender(), "join", id_, "ask near");
  ASSERT_OK(b);
  ASSERT_OK(keeper->await("asked", 2));
  EXPECT_EQ(keeper->said("asked")->at("text"), "near");

  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(keeper->await("quarantined"));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_OK(keeper->await("asked", 3));
  EXPECT_EQ(keeper->said("asked")->at("text"), "far") << "told anew";
  ASSERT_OK(b->kill());
  ASSERT_OK(keeper->await("gone"));
  EXPECT_OK(await_clients(lender(), id_, 1));

  ASSERT_OK(lender().run("touch /run/again"));
  ASSERT_OK(keeper->await("answered", 2));
  std::map<std::string, std::string> answers;
  for (const json& line : keeper->said())
    if (line.at("step") == "answered")
      answers[line.at("lease").dump()] = line.at("answer").get<std::string>();
  ASSERT_OK(a->end());
  const std::string lease = a->said("joined")->at("lease").dump();
  EXPECT_EQ(answers[lease], "not refused");
  EXPECT_THAT(answers[b->said("joined")->at("lease").dump()],
              HasSubstr("no client has this lease"));
  EXPECT_EQ(a->said("ask")->at("answer"), "far to " + lease);
  EXPECT_EQ(a->said("copy")->at("same"), true);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   clients on host1 and host2 wait for an answer ── the manager is killed: the lease is over
 */
TEST_F(SharedLease, AManagerThatDiesLeavesNobodyWaiting) {
  auto keeper = manager("2", "hold /run/never");
  ASSERT_OK(keeper);
  std::vector<ShareUser> clients;
  for (int number : {1, 2}) {
    ASSERT_OK(await_state(lab_->host(number), id_, "borrowed"));
    auto client = ShareUser::start(lab_->host(number), "join", id_, "ask who");
    ASSERT_OK(client);
    ASSERT_OK(keeper->await("asked", clients.size() + 1));
    clients.push_back(std::move(*client));
  }
  ASSERT_OK(keeper->kill());
  for (auto& client : clients) {
    ASSERT_OK(client.end());
    EXPECT_THAT(client.said("ask")->at("refused").get<std::string>(),
                HasSubstr("the lease is over"));
  }
  ASSERT_OK(await_state(lender(), id_, "available"));
}

}  // namespace
}  // namespace pcilend::scenarios

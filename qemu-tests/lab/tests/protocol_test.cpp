// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/agent/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace pcilend::lab::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Frame> read_all(FrameReader& reader, std::string_view bytes) {
  std::vector<Frame> frames;
  reader.feed(bytes, [&](Frame frame) { frames.push_back(std::move(frame)); });
  return frames;
}

std::vector<Frame> read_all(std::string_view bytes) {
  FrameReader reader;
  return read_all(reader, bytes);
}

Frame content(std::string body) {
  return {FrameType::Content, 7, std::move(body)};
}

TEST(Frames, AFrameHasNoZeroByteButItsLast) {
  const std::string wire = encode(content(std::string("a\0\0b\0", 5)));
  EXPECT_EQ(wire.find('\0'), wire.size() - 1);
}

// The block length of COBS is 254: bodies around it and its multiples, with zeros at every place
// that matters.
TEST(Frames, BodiesOfEveryLengthComeBack) {
  std::mt19937 random(1);
  for (size_t size = 0; size < 800; ++size) {
    for (const int zeros : {0, 1, 8, 256}) {
      std::string body(size, '\0');
      for (char& byte : body)
        byte =
            static_cast<int>(random() % 256) < zeros ? '\0' : static_cast<char>(random() % 255 + 1);
      ASSERT_THAT(read_all(encode(content(body))), ElementsAre(content(body))) << size;
    }
  }
}

TEST(Frames, TheLongestBodyComesBackAndALongerOneIsDropped) {
  for (const char fill : {'\0', 'x'}) {
    const Frame longest = content(std::string(kMaxBody, fill));
    EXPECT_THAT(read_all(encode(longest)), ElementsAre(longest));
    FrameReader reader;
    EXPECT_THAT(read_all(reader, encode(content(std::string(kMaxBody + 1, fill)))), IsEmpty());
    EXPECT_EQ(reader.dropped(), 1U);
    EXPECT_THAT(read_all(reader, encode(content("next"))), ElementsAre(content("next")));
  }
}

TEST(Frames, ArriveInAnyPieces) {
  const std::string wire = encode(content("one")) + encode(content(std::string(600, '\0')));
  for (size_t step = 1; step < 40; ++step) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (size_t at = 0; at < wire.size(); at += step)
      for (Frame& frame : read_all(reader, std::string_view(wire).substr(at, step)))
        frames.push_back(std::move(frame));
    EXPECT_THAT(frames, ElementsAre(content("one"), content(std::string(600, '\0'))));
  }
}

// What a client that died in the middle of a frame leaves behind costs that frame alone.
TEST(Frames, AReaderIsInStepAfterAnyTruncation) {
  const std::string stale = encode(content("0123456789"));
  for (size_t cut = 0; cut < stale.size(); ++cut) {
    FrameReader reader;
    const std::string wire = stale.substr(0, cut) + std::string(1, '\0') + encode(content("fresh"));
    EXPECT_THAT(read_all(reader, wire).back(), content("fresh")) << cut;
  }
}

TEST(Frames, AStreamWithoutEndKeepsMemoryBounded) {
  FrameReader reader;
  const std::string noise(1 << 20, 'x');
  for (int i = 0; i < 16; ++i) EXPECT_THAT(read_all(reader, noise), IsEmpty());
  EXPECT_THAT(read_all(reader, std::string(1, '\0') + encode(content("on"))),
              ElementsAre(content("on")));
  EXPECT_EQ(reader.dropped(), 1U);
}

TEST(Frames, AnUnknownTypeIsDropped) {
  FrameReader reader;
  for (const int type : {0, 8, 15, 17, 31, 39, 255})
    EXPECT_THAT(read_all(reader, encode({static_cast<FrameType>(type), 1, "x"})), IsEmpty())
        << type;
  EXPECT_EQ(reader.dropped(), 7U);
}

TEST(Frames, TooShortForAHeaderIsDropped) {
  FrameReader reader;
  EXPECT_THAT(read_all(reader, std::string("\x03\x01\x02\0", 4)), IsEmpty());
  EXPECT_EQ(reader.dropped(), 1U);
}

template <class Body>
void expect_only_exact(const std::string& body) {
  for (size_t cut = 0; cut < body.size(); ++cut)
    EXPECT_FALSE(Body::parse(body.substr(0, cut))) << cut;
  EXPECT_FALSE(Body::parse(body + "x"));
}

TEST(Bodies, ARunRequestComesBack) {
  const RunRequest request{{"sh", "-c", "", "a b"}, true, true, {24, 80}};
  const auto parsed = RunRequest::parse(request.body());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->argv, request.argv);
  EXPECT_TRUE(parsed->input);
  EXPECT_TRUE(parsed->terminal);
  EXPECT_EQ(parsed->window.rows, 24);
  EXPECT_EQ(parsed->window.columns, 80);
  expect_only_exact<RunRequest>(request.body());
}

TEST(Bodies, ARunRequestNeedsACommandWithoutZeroBytes) {
  EXPECT_FALSE(RunRequest::parse(RunRequest{{}, false, false, {}}.body()));
  EXPECT_FALSE(RunRequest::parse(RunRequest{{std::string("a\0b", 3)}, false, false, {}}.body()));
}

TEST(Bodies, ACountOfArgumentsThatCannotBeIsRefused) {
  std::string body = RunRequest{{"true"}, false, false, {}}.body();
  body.replace(6, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(RunRequest::parse(body));
}

TEST(Bodies, AFlagIsZeroOrOne) {
  std::string body = RunRequest{{"true"}, false, false, {}}.body();
  body[0] = 2;
  EXPECT_FALSE(RunRequest::parse(body));
}

TEST(Bodies, AFileRequestComesBack) {
  const FileRequest request{"/root/x", "x", 04755};
  EXPECT_EQ(FileRequest::parse(request.body()), request);
  expect_only_exact<FileRequest>(request.body());
  EXPECT_FALSE(FileRequest::parse(FileRequest{"", "x", 0}.body()));
  EXPECT_FALSE(FileRequest::parse(FileRequest{"/x", "x", 010000}.body()));
  EXPECT_FALSE(FileRequest::parse(FileRequest{std::string("/x\0y", 4), "x", 0}.body()));
}

TEST(Bodies, TheOthersComeBack) {
  const ExitStatus killed{true, 9};
  EXPECT_EQ(ExitStatus::parse(killed.body()), killed);
  EXPECT_EQ(killed.code(), 137);
  const ExitStatus failed{false, 3};
  EXPECT_EQ(ExitStatus::parse(failed.body()), failed);
  EXPECT_EQ(failed.code(), 3);
  expect_only_exact<ExitStatus>(failed.body());

  const auto welcome = Welcome::parse(Welcome{kVersion, "boot"}.body());
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->boot_id, "boot");
  expect_only_exact<Welcome>(welcome->body());

  const auto refusal = Refusal::parse(Refusal{ENOENT, "no"}.body());
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->error, ENOENT);
  EXPECT_EQ(refusal->message, "no");
  expect_only_exact<Refusal>(refusal->body());

  expect_only_exact<Hello>(Hello{}.body());
  expect_only_exact<FileInfo>(FileInfo{0644}.body());
  EXPECT_EQ(FileInfo::parse(FileInfo{0644}.body())->mode, 0644U);
  expect_only_exact<WindowSize>(WindowSize{1, 2}.body());
}

TEST(Bodies, ASignalIsOneThatExists) {
  EXPECT_EQ(parse_signal(signal_body(15)), 15U);
  EXPECT_FALSE(parse_signal(signal_body(0)));
  EXPECT_FALSE(parse_signal(signal_body(65)));
  EXPECT_FALSE(parse_signal("\x0f"));
}

}  // namespace
}  // namespace pcilend::lab::agent

#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "temporary_folder.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;

TEST(File, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  std::string content = "line\n";
  content += std::string(1 << 20, '\0') + "end";
  write_file_atomically(folder.path() / "a", content);
  EXPECT_EQ(read_file(folder.path() / "a"), content);
  write_file_atomically(folder.path() / "a", "");
  EXPECT_EQ(read_file(folder.path() / "a"), "");
  EXPECT_EQ(folder.file_count(), 1u) << "no temporary stays";
}

TEST(File, ReadsFilesThatHideTheirSize) { EXPECT_TRUE(read_file("/proc/self/status").starts_with("Name:")); }

TEST(File, MissingFileAndFolderAreUserErrors) {
  const TemporaryFolder folder;
  EXPECT_TRUE(says(user_error([&] { read_file(folder.path() / "none"); }), {"none: cannot read: No such file", ";"}));
  EXPECT_TRUE(says(user_error([&] { read_file(folder.path()); }), {"cannot read: it is a folder"}));
}

TEST(File, WithoutCommitTheOldContentStays) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("a", "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.file_count(), 1u);
}

TEST(File, CommitUnderAnotherNameLeavesTheFirstAlone) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("a", "old");
  AtomicFile file(path);
  file.write("new");
  file.commit_as("b");
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(read_file(folder.path() / "b"), "new");
  EXPECT_EQ(folder.file_count(), 2u);
}

TEST(File, TwoWritersOfOneFileDoNotMix) {
  const TemporaryFolder folder;
  AtomicFile first(folder.path() / "a"), second(folder.path() / "a");
  first.write("1");
  second.write("22");
  second.commit();
  EXPECT_EQ(read_file(folder.path() / "a"), "22");
  first.commit();
  EXPECT_EQ(read_file(folder.path() / "a"), "1");
}

TEST(File, NewFilesFollowTheUmask) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(0027);
  write_file_atomically(folder.path() / "a", "x");
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat((folder.path() / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0640u);
}

TEST(File, WritingWhereThereIsNoFolderIsAUserError) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "keep");
  EXPECT_TRUE(says(user_error([&] { write_file_atomically(folder.path() / "none" / "a", "x"); }),
                   {"none/a: cannot write: No such file", "choose"}));
  EXPECT_TRUE(says(user_error([&] { write_file_atomically(file / "a", "x"); }), {"cannot write: Not a directory"}));
  EXPECT_TRUE(says(user_error([&] { write_file_atomically(folder.path(), "x"); }), {"it is a folder"}));
  EXPECT_TRUE(says(user_error([&] { write_file_atomically(folder.path() / "", "x"); }), {"it names no file"}));
  EXPECT_EQ(read_file(file), "keep");
}

TEST(File, AFullDiskIsAUserError) {
  EXPECT_TRUE(says(user_error([] { write_file_atomically("/dev/full", "x"); }), {"/dev/full: cannot write: No space"}));
}

TEST(File, DevicesAreWrittenNotReplaced) {
  check_writable("/dev/null");
  write_file_atomically("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(File, CheckWritableCreatesFoldersAndTouchesNothingElse) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "x" / "y" / "out.json";
  check_writable(path);
  EXPECT_TRUE(fs::is_directory(path.parent_path()));
  EXPECT_TRUE(fs::is_empty(path.parent_path()));
  const fs::path old = folder.write("old", "keep");
  check_writable(old);
  EXPECT_EQ(read_file(old), "keep");
}

TEST(File, CheckWritableFindsWhatCannotBeWritten) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "");
  EXPECT_TRUE(says(user_error([&] { check_writable(file / "a"); }), {"cannot create the folder", "choose"}));
  EXPECT_TRUE(says(user_error([&] { check_writable(folder.path()); }), {"it is a folder"}));
}

TEST(File, CheckWritableFindsMissingPermission) {
  const TemporaryFolder folder;
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
  EXPECT_TRUE(says(user_error([&] { check_writable(folder.path() / "a"); }), {"cannot write: Permission denied"}));
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
}

TEST(File, CreateFoldersIsFineTwice) {
  const TemporaryFolder folder;
  create_folders(folder.path() / "a" / "b");
  create_folders(folder.path() / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder.path() / "a" / "b"));
}

}  // namespace
}  // namespace overtake

#pragma once
// The families of the zoo, each in its own file.

#include "overtake/zoo.h"

namespace overtake {

std::vector<ZooEntry> small_networks();
std::vector<ZooEntry> vgg_networks();
std::vector<ZooEntry> residual_networks();
std::vector<ZooEntry> densenets();
std::vector<ZooEntry> mobilenets();
std::vector<ZooEntry> inception_v3_networks();
std::vector<ZooEntry> inception_v4_networks();
std::vector<ZooEntry> vision_transformers();
std::vector<ZooEntry> recurrent_networks();
std::vector<ZooEntry> bert_networks();
std::vector<ZooEntry> gpt_networks();

}  // namespace overtake

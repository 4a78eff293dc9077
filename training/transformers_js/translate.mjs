// Translate the lines of stdin with the model in the folder of this name:
//     npm install @huggingface/transformers && node translate.mjs model < test.en
import { createInterface } from "node:readline";

import { env, pipeline } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "./";
const translate = await pipeline("translation", process.argv[2], { dtype: "fp32" });
// transformers.js has no beam search. Its own limit of 256 tokens may be more than the model has positions for.
const settings = { num_beams: 1, max_new_tokens: null };
for await (const line of createInterface({ input: process.stdin })) {
  const [{ translation_text }] = line.trim() ? await translate(line, settings) : [{ translation_text: "" }];
  console.log(translation_text);
}

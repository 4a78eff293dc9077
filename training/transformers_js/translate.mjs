// Translate the lines of stdin with the model in the folder of this name:
//     npm install @huggingface/transformers && node translate.mjs model < test.en
import { createInterface } from "node:readline";

import { env, pipeline } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = "./";
const translate = await pipeline("translation", process.argv[2], { dtype: "fp32" });
for await (const line of createInterface({ input: process.stdin })) {
  // transformers.js has no beam search.
  const [{ translation_text }] = await translate(line, { num_beams: 1 });
  console.log(translation_text);
}

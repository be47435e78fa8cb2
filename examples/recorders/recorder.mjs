// SPDX-License-Identifier: Apache-2.0
// Records operations as a history for `harness check`. Every event is a write of its own.
//
//   const recorder = new Recorder("history.jsonl");
//   const client = recorder.process();                // one for each client that awaits one operation at a time
//   await client.op("write", { key: "x", value: 3 }, async (op) => {
//     await store.write("x", 3);
//     op.ok();                                        // op.ok(result), op.fail(reason), op.info(reason)
//   });                                               // an exception, or no outcome: not known
import { closeSync, openSync, writeSync } from "node:fs";

export class Recorder {
  #file;
  #start = process.hrtime.bigint();
  #processes = 0;

  constructor(path) {
    this.#file = openSync(path, "w");
  }

  process() {
    let number = this.#processes++;
    const write = (type, f, key, value, more) => {
      const time = Number(process.hrtime.bigint() - this.#start);
      const event = { process: number, type, f, key, value: value ?? null, ...more, time };
      writeSync(this.#file, JSON.stringify(event) + "\n");
    };
    const op = async (f, { key = null, value = null, ...extra }, work) => {
      let open = true;
      const end = (type, result, more) => {
        if (!open) throw new Error(`${f} has an outcome already`);
        open = false;
        write(type, f, key, result, more);
        if (type === "info") number = this.#processes++;
      };
      write("invoke", f, key, value, Object.keys(extra).length ? { extra } : {});
      try {
        return await work({
          ok: (...result) => end("ok", result.length ? result[0] : value, {}),
          fail: (error) => end("fail", value, { error: String(error) }), // it certainly never happens
          info: (error) => end("info", value, { error: String(error) }),
        });
      } catch (error) {
        if (open) end("info", value, { error: String(error) });
        throw error;
      } finally {
        if (open) end("info", value, { error: "no outcome was recorded" });
      }
    };
    return { op };
  }

  close() {
    closeSync(this.#file);
  }
}

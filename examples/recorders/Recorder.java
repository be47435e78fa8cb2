// SPDX-License-Identifier: Apache-2.0
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.StringJoiner;

/** Records operations as a history for `harness check`. Each thread is a process; every event is a write of its own.
 *  try (var op = recorder.op("write", "x", 3)) { client.write("x", 3); op.ok(); }   // an exception: outcome not known */
public final class Recorder implements AutoCloseable {
    private final FileOutputStream file;
    private final long start = System.nanoTime();
    private final ThreadLocal<Integer> process = ThreadLocal.withInitial(this::next);
    private int processes;

    public Recorder(String path) throws IOException { file = new FileOutputStream(path); }

    public Op op(String f, Object key, Object value) { return new Op(f, key, value); }

    @Override public void close() throws IOException { file.close(); }

    private synchronized int next() { return processes++; }

    private synchronized void write(String type, String common, Object value, String more) {
        String line = "{\"process\":" + process.get() + ",\"type\":\"" + type + "\"" + common + ",\"value\":" + json(value)
            + more + ",\"time\":" + (System.nanoTime() - start) + "}\n";
        try { file.write(line.getBytes(StandardCharsets.UTF_8)); } catch (IOException e) { throw new IllegalStateException(e); }
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) return String.valueOf(value);
        if (value instanceof Iterable<?> values) {
            StringJoiner all = new StringJoiner(",", "[", "]");
            values.forEach(one -> all.add(json(one)));
            return all.toString();
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toString().toCharArray())
            text.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : c);
        return text.append('"').toString();
    }

    public final class Op implements AutoCloseable {
        private final String common;
        private final Object value;
        private boolean open = true;

        Op(String f, Object key, Object value) {
            this.common = ",\"f\":" + json(f) + ",\"key\":" + json(key);
            this.value = value;
            write("invoke", common, value, "");
        }

        public void ok() { ok(value); }
        public void ok(Object result) { end("ok", result, ""); }
        public void fail(Object error) { end("fail", value, ",\"error\":" + json(error)); }  // it certainly never happens
        public void info(Object error) { end("info", value, ",\"error\":" + json(error)); process.set(next()); }
        @Override public void close() { if (open) info("no outcome was recorded"); }
        private void end(String type, Object result, String more) { open = false; write(type, common, result, more); }
    }
}

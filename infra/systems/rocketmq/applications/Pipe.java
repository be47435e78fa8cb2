// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** The events of an application: one JSON object a line, flushed at once, so that a killed one has told all it did. */
final class Pipe {
    private static final Gson JSON = new GsonBuilder().disableHtmlEscaping().create();

    private static final int LARGE = 4096;
    private static final int SHOWN = 64;

    private final PrintStream out;

    Pipe(PrintStream out) {
        this.out = out;
    }

    /** A body as text; of a large one, its begin. */
    static String text(byte[] body) {
        return new String(body, 0, body.length > LARGE ? SHOWN : body.length, StandardCharsets.UTF_8);
    }

    /** Writes an event: its name, then names and values in turn. A null is left out. `clock`: its time (us). */
    void tell(String event, Object... fields) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("clock", System.nanoTime() / 1000);
        for (int i = 0; i < fields.length; i += 2) {
            if (fields[i + 1] != null) {
                line.put((String) fields[i], fields[i + 1]);
            }
        }
        String text = JSON.toJson(line);
        synchronized (this) {
            out.println(text);
            out.flush();
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
package harness.client;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * One process of an application with RocketMQ's own client: it takes commands on stdin and tells what its producers
 * and consumers do on stdout, both as lines of JSON (docs/clients.md).
 */
public final class Application {
    private static final PrintStream OUT = System.out;

    private final Pipe pipe = new Pipe(OUT);
    private final Map<String, Part> parts = new HashMap<>();

    /** A producer or a consumer. */
    interface Part {
        /** Does what a command says. */
        void take(JsonObject command) throws Exception;

        /** Ends it in an orderly way. */
        void stop();
    }

    public static void main(String[] args) throws IOException {
        System.setOut(System.err); // what a library prints is no event
        new Application().run();
        // The control program is gone, or wants this process to be: nothing more may happen.
        Runtime.getRuntime().halt(0);
    }

    private void run() throws IOException {
        String pid = new File("/proc/self").getCanonicalFile().getName();
        pipe.tell("hello", "pid", Long.parseLong(pid));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            String name = command.has("name") ? command.get("name").getAsString() : "";
            try {
                take(command.get("do").getAsString(), name, command);
            } catch (Throwable problem) {
                pipe.tell("failed", "name", name, "n", number(command), "error", problem.getClass().getSimpleName(),
                        "why", String.valueOf(problem.getMessage()));
            }
        }
    }

    private void take(String what, String name, JsonObject command) throws Exception {
        switch (what) {
            case "consume":
                String library = command.get("library").getAsString();
                parts.put(name, library.startsWith("grpc") ? new GrpcConsumer(pipe, command)
                        : library.equals("lite-pull") ? new LitePullConsumer(pipe, command)
                        : new PushConsumer(pipe, command));
                return;
            case "produce":
                boolean transactional = command.has("transactional") && command.get("transactional").getAsBoolean();
                parts.put(name, transactional ? new TransactionProducer(pipe, command) : new Producer(pipe, command));
                return;
            case "stop":
                Part ended = parts.remove(name);
                if (ended != null) {
                    ended.stop();
                }
                pipe.tell("stopped", "name", name);
                return;
            default:
                Part part = parts.get(name);
                if (part == null) {
                    throw new IllegalArgumentException("nothing here is called '" + name + "'");
                }
                part.take(command);
        }
    }

    private static Long number(JsonObject command) {
        return command.has("n") ? command.get("n").getAsLong() : null;
    }
}

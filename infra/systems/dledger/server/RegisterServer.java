// SPDX-License-Identifier: Apache-2.0
package harness.dledger;

import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.SortedMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One DLedger node with registers: string keys, 64-bit values (the Register of RIP-59, whose own server is not published).
 *
 * <pre>
 * RegisterServer SETTINGS EFFECTIVE   run; write the settings in force to the file EFFECTIVE
 * RegisterServer --check SETTINGS     print the settings in force, or one line that says what is wrong (exit 64)
 * </pre>
 *
 * SETTINGS is a properties file: the options of {@link DLedgerConfig} by their own names (see {@link Settings}).
 */
public final class RegisterServer {

    private static final Logger LOGGER = LoggerFactory.getLogger(RegisterServer.class);
    private static final int USAGE = 64;
    private static final int FAILED = 70;

    private RegisterServer() {
    }

    public static void main(String[] args) {
        boolean check = args.length == 2 && args[0].equals("--check");
        if (args.length != 2) {
            exit(USAGE, "usage: RegisterServer SETTINGS EFFECTIVE | RegisterServer --check SETTINGS");
        }
        DLedgerConfig config = new DLedgerConfig();
        SortedMap<String, String> effective = null;
        try {
            Settings.apply(Paths.get(args[check ? 1 : 0]), config);
            effective = Settings.effective(config);
        } catch (Settings.Wrong wrong) {
            exit(USAGE, wrong.getMessage());
        }
        if (check) {
            effective.forEach((key, value) -> System.out.println(key + "=" + value));
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
        try {
            serve(config, effective, Paths.get(args[1]));
        } catch (Throwable t) {
            LOGGER.error("[START] failed", t);
            exit(FAILED, "the server did not start: " + t);
        }
    }

    private static void serve(DLedgerConfig config, SortedMap<String, String> effective, Path file) throws Exception {
        LOGGER.info("[START] node {} of {} settings {}", config.getSelfId(), config.getPeers(), effective);
        Settings.write(effective, file);
        RegisterMachine machine = new RegisterMachine(config.getGroup(), config.getSelfId());
        DLedgerServer server = new DLedgerServer(config);
        server.registerStateMachine(machine);
        server.registerUserDefineProcessors(Arrays.asList(
            new Processors.Write(server, machine),
            new Processors.Read(server, machine),
            new Processors.CompareAndSet(server, machine),
            new Processors.Status(server, machine)));
        server.startup();
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown, "shutdown"));
        LOGGER.info("[START] listening on {}", config.getSelfAddress());
    }

    /** Ends at once: threads of a half-started library must not keep the JVM alive. */
    private static void exit(int code, String line) {
        System.err.println("RegisterServer: " + line);
        System.err.flush();
        Runtime.getRuntime().halt(code);
    }
}

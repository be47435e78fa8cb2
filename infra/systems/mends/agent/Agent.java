// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.io.File;
import java.io.FileInputStream;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.security.ProtectionDomain;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TimeZone;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Edits classes of a server before its main method runs. Argument: the file of the orders (see {@link Mender}).
 *
 * <p>It prints `mend ID applied to CLASS.METHOD` for each edit, after the JVM has loaded and verified the class; on stderr,
 * since the stdout of an application has its events. A server where any edit fails ends at once: half a mend would be a
 * third kind of server.
 */
public final class Agent {
    private static final int NOT_APPLIED = 70;

    private Agent() {
    }

    public static void premain(String orders, Instrumentation instrumentation) {
        try {
            apply(orders, instrumentation);
        } catch (InvocationTargetException problem) {
            giveUp(problem.getCause());
        } catch (Throwable problem) {
            giveUp(problem);
        }
    }

    /** Does nothing: with it as the main class a JVM only tells whether the edits apply. */
    public static void main(String[] args) {
    }

    private static void apply(String file, Instrumentation instrumentation) throws Exception {
        Properties orders = new Properties();
        try (FileInputStream in = new FileInputStream(file)) {
            orders.load(in);
        }
        ClassLoader servers = ClassLoader.getSystemClassLoader();
        List<String> done = new ArrayList<>();
        Map<String, byte[][]> edited = edit(orders, servers, done);
        Replacer replacer = new Replacer(edited);
        instrumentation.addTransformer(replacer);
        for (String name : edited.keySet()) {
            Class<?> loaded = Class.forName(name, false, servers);
            loaded.getDeclaredConstructors(); // links the class: the verifier speaks now, not during the run
            String problem = replacer.seen.get(name);
            if (problem == null || !problem.isEmpty()) {
                throw new IllegalStateException(name + (problem == null ? " was loaded before the agent" : problem));
            }
        }
        for (String line : done) {
            say(line);
        }
    }

    /**
     * Class -> its bytes before and after. Javassist is loaded by a class loader of its own: servers have other versions
     * of it on their class path.
     */
    @SuppressWarnings("unchecked")
    private static Map<String, byte[][]> edit(Properties orders, ClassLoader servers, List<String> done) throws Exception {
        File folder = new File(Agent.class.getProtectionDomain().getCodeSource().getLocation().toURI()).getParentFile();
        List<URL> jars = new ArrayList<>();
        for (File file : folder.listFiles()) {
            if (file.getName().endsWith(".jar")) {
                jars.add(file.toURI().toURL());
            }
        }
        try (URLClassLoader own = new URLClassLoader(jars.toArray(new URL[0]), servers.getParent())) {
            return (Map<String, byte[][]>) own.loadClass("harness.mends.Mender")
                .getMethod("edit", Properties.class, ClassLoader.class, List.class)
                .invoke(null, orders, servers, done);
        }
    }

    private static void giveUp(Throwable problem) {
        say("mends not applied: " + problem);
        System.err.flush();
        Runtime.getRuntime().halt(NOT_APPLIED);
    }

    private static void say(String line) {
        SimpleDateFormat time = new SimpleDateFormat("yyyy-MM-dd HH:mm:ss.SSS");
        time.setTimeZone(TimeZone.getTimeZone("UTC"));
        System.err.println(time.format(new Date()) + " " + line);
    }

    /** Gives the JVM the edited bytes. `seen`: class -> "" where it did, else why not. */
    private static final class Replacer implements ClassFileTransformer {
        final Map<String, String> seen = new ConcurrentHashMap<>();
        private final Map<String, byte[][]> edited;

        Replacer(Map<String, byte[][]> edited) {
            this.edited = edited;
        }

        @Override
        public byte[] transform(
            ClassLoader loader, String path, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
            String name = path == null ? "" : path.replace('/', '.');
            byte[][] change = edited.get(name);
            if (change == null) {
                return null;
            }
            boolean same = Arrays.equals(change[0], bytes);
            seen.put(name, same ? "" : " is loaded from other bytes than those on the class path");
            return same ? change[1] : null;
        }
    }
}

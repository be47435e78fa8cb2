// SPDX-License-Identifier: Apache-2.0
package harness.rocketmq;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Properties;
import org.apache.rocketmq.common.MixAll;

/**
 * Lets RocketMQ's configuration objects take settings, as its servers do at their start, and reads them back.
 *
 * A file with one setting a line, its parts separated by tabs: kind of server, name, value, and the classes of the
 * objects that the server fills. Exit code 1, and one line on stderr, at the first setting that none of them has, or
 * that holds another value afterwards. Servers ignore both without a word.
 */
public final class CheckSettings {
    private CheckSettings() {
    }

    public static void main(String[] args) throws IOException {
        for (String line : Files.readAllLines(Paths.get(args[0]), StandardCharsets.UTF_8)) {
            String[] parts = line.split("\t", -1);
            String problem = check(parts[1], parts[2], parts);
            if (problem != null) {
                System.err.println("CheckSettings: " + parts[0] + "." + parts[1] + problem);
                System.exit(1);
            }
        }
    }

    /** What is wrong with a setting, or null. The classes' names are `parts[3]` and those behind it. */
    private static String check(String name, String value, String[] parts) {
        Properties asked = new Properties();
        asked.setProperty(name, value);
        String refused = null;
        for (int i = 3; i < parts.length; i++) {
            Object config = fresh(parts[i]);
            if (config == null || MixAll.object2Properties(config).getProperty(name) == null && !hasSetter(config, name)) {
                continue;
            }
            MixAll.properties2Object(asked, config);
            String taken = MixAll.object2Properties(config).getProperty(name);
            if (same(value, taken)) {
                return null;
            }
            refused = "=" + value + " is not taken: it stays " + taken;
        }
        return refused != null ? refused : ": this version has no such setting" + nearest(name, parts);
    }

    /** `; did you mean 'flushDiskType'?` where a setting is named nearly so, else nothing. */
    private static String nearest(String name, String[] parts) {
        String best = null;
        int least = Math.max(2, name.length() / 4) + 1;
        for (int i = 3; i < parts.length; i++) {
            Object config = fresh(parts[i]);
            if (config == null) {
                continue;
            }
            for (String known : MixAll.object2Properties(config).stringPropertyNames()) {
                int distance = distance(name.toLowerCase(), known.toLowerCase());
                if (distance < least || distance == least && best != null && known.compareTo(best) < 0) {
                    least = distance;
                    best = known;
                }
            }
        }
        return best == null ? "" : "; did you mean '" + best + "'?";
    }

    /** How many characters have to be put in, taken out or changed (Levenshtein). */
    private static int distance(String a, String b) {
        int[] before = new int[b.length() + 1];
        for (int j = 0; j <= b.length(); j++) {
            before[j] = j;
        }
        for (int i = 1; i <= a.length(); i++) {
            int[] now = new int[b.length() + 1];
            now[0] = i;
            for (int j = 1; j <= b.length(); j++) {
                int changed = before[j - 1] + (a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1);
                now[j] = Math.min(changed, Math.min(before[j], now[j - 1]) + 1);
            }
            before = now;
        }
        return before[b.length()];
    }

    /** A configuration object as the server makes it, or null where this version has no such class. */
    private static Object fresh(String name) {
        try {
            return Class.forName(name).getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    /** A setting without a default is in no properties before it is set. */
    private static boolean hasSetter(Object config, String name) {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (java.lang.reflect.Method method : config.getClass().getMethods()) {
            if (method.getParameterCount() == 1 && (method.getName().equals(setter) || method.getName().equals("set" + name))) {
                return true;
            }
        }
        return false;
    }

    private static boolean same(String asked, String taken) {
        if (taken == null) {
            return false;
        }
        if (asked.equalsIgnoreCase(taken)) {
            return true;
        }
        try {
            return Double.parseDouble(asked) == Double.parseDouble(taken);
        } catch (NumberFormatException e) {
            return false;
        }
    }
}

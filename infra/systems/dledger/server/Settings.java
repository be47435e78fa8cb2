// SPDX-License-Identifier: Apache-2.0
package harness.dledger;

import io.openmessaging.storage.dledger.DLedgerConfig;
import java.io.BufferedReader;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Map;
import java.util.Properties;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * Every option of {@link DLedgerConfig} by its own name: {@code heartBeatTimeIntervalMs=500} calls
 * {@code setHeartBeatTimeIntervalMs(500)}. Found by reflection, so that another version's options work as well.
 */
final class Settings {

    /** What the user has to change; the message is one line. */
    static final class Wrong extends Exception {
        private static final long serialVersionUID = 1L;

        Wrong(String message) {
            super(message);
        }
    }

    private Settings() {
    }

    static void apply(Path file, DLedgerConfig config) throws Wrong {
        Properties wanted = new Properties();
        try (BufferedReader reader = Files.newBufferedReader(file, StandardCharsets.UTF_8)) {
            wanted.load(reader);
        } catch (IOException | IllegalArgumentException e) {
            throw new Wrong("cannot read the settings " + file + ": " + e.getMessage());
        }
        SortedMap<String, Method> setters = setters();
        for (String key : new TreeMap<>(wanted.stringPropertyNames().stream()
                .collect(Collectors.toMap(name -> name, name -> name))).keySet()) {
            Method setter = setters.get(key);
            if (setter == null) {
                throw new Wrong("DLedger has no setting '" + key + "'; near it: " + near(key, setters));
            }
            Class<?> type = setter.getParameterTypes()[0];
            String text = wanted.getProperty(key).trim();
            try {
                setter.invoke(config, value(text, type));
            } catch (IllegalArgumentException e) {
                throw new Wrong("setting '" + key + "' is '" + text + "', not " + describe(type));
            } catch (IllegalAccessException | InvocationTargetException e) {
                throw new Wrong("setting '" + key + "' was refused: " + e.getCause());
            }
        }
    }

    /** All options and their values, also those nobody set. */
    static SortedMap<String, String> effective(DLedgerConfig config) {
        SortedMap<String, String> out = new TreeMap<>();
        for (String key : setters().keySet()) {
            String name = Character.toUpperCase(key.charAt(0)) + key.substring(1);
            for (String prefix : new String[] {"get", "is"}) {
                try {
                    out.put(key, String.valueOf(DLedgerConfig.class.getMethod(prefix + name).invoke(config)));
                } catch (NoSuchMethodException e) {
                    continue;
                } catch (IllegalAccessException | InvocationTargetException e) {
                    out.put(key, "unreadable: " + e);
                }
            }
        }
        return out;
    }

    static void write(SortedMap<String, String> effective, Path file) throws IOException {
        String text = effective.entrySet().stream().map(e -> e.getKey() + "=" + e.getValue() + "\n")
            .collect(Collectors.joining());
        Files.write(file, text.getBytes(StandardCharsets.UTF_8));
    }

    private static SortedMap<String, Method> setters() {
        SortedMap<String, Method> out = new TreeMap<>();
        for (Method method : DLedgerConfig.class.getMethods()) {
            String name = method.getName();
            if (name.startsWith("set") && name.length() > 3 && method.getParameterCount() == 1) {
                out.put(Character.toLowerCase(name.charAt(3)) + name.substring(4), method);
            }
        }
        return out;
    }

    /** Throws IllegalArgumentException (NumberFormatException is one) where the text does not fit. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object value(String text, Class<?> type) {
        if (type == int.class) {
            return Integer.valueOf(text);
        } else if (type == long.class) {
            return Long.valueOf(text);
        } else if (type == float.class) {
            return Float.valueOf(text);
        } else if (type == double.class) {
            return Double.valueOf(text);
        } else if (type == boolean.class && (text.equals("true") || text.equals("false"))) {
            return Boolean.valueOf(text);
        } else if (type == String.class) {
            return text;
        } else if (type.isEnum()) {
            return Enum.valueOf((Class<Enum>) type, text);
        }
        throw new IllegalArgumentException(text);
    }

    private static String describe(Class<?> type) {
        if (type.isEnum()) {
            return "one of " + Arrays.stream(type.getEnumConstants()).map(String::valueOf)
                .collect(Collectors.joining(", "));
        }
        return type == boolean.class ? "true or false" : "a value of type " + type.getSimpleName();
    }

    private static String near(String key, Map<String, Method> setters) {
        return setters.keySet().stream().sorted(Comparator.comparingInt(name -> distance(key, name))).limit(3)
            .collect(Collectors.joining(", "));
    }

    /** Levenshtein's edit distance, letter case aside. */
    private static int distance(String a, String b) {
        int[] row = new int[b.length() + 1];
        Arrays.setAll(row, j -> j);
        for (int i = 1; i <= a.length(); i++) {
            int diagonal = row[0];
            row[0] = i;
            for (int j = 1; j <= b.length(); j++) {
                boolean same = Character.toLowerCase(a.charAt(i - 1)) == Character.toLowerCase(b.charAt(j - 1));
                int here = Math.min(Math.min(row[j], row[j - 1]) + 1, diagonal + (same ? 0 : 1));
                diagonal = row[j];
                row[j] = here;
            }
        }
        return row[b.length()];
    }
}

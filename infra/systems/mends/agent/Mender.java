// SPDX-License-Identifier: Apache-2.0
package harness.mends;

import java.io.InputStream;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import javassist.CannotCompileException;
import javassist.ClassPool;
import javassist.CtBehavior;
import javassist.CtClass;
import javassist.CtMethod;
import javassist.LoaderClassPath;
import javassist.NotFoundException;
import javassist.expr.ExprEditor;
import javassist.expr.MethodCall;

/**
 * Carries out orders, with Javassist. An order is a number with these properties (`0.mend`, `0.class`, ...):
 *
 * <pre>
 * mend        id, for messages
 * class, method, descriptor   what is edited; descriptor may be missing where the class has one method of this name
 * at          `call`: each call of `call` (CLASS.METHOD) in the method becomes `source`; `before`, `after`: `source` is
 *             put before the method's code, after it; `body`: `source` replaces the code
 * source      Java as Javassist reads it ($1: first argument, $_: result, $proceed($$): the call itself)
 * </pre>
 */
public final class Mender {
    private Mender() {
    }

    /** Class -> its bytes before and after all orders, in their sequence; `done` gets a line for each order. */
    public static Map<String, byte[][]> edit(Properties orders, ClassLoader servers, List<String> done) throws Exception {
        ClassPool pool = new ClassPool(false);
        pool.appendClassPath(new LoaderClassPath(servers));
        Map<String, CtClass> classes = new LinkedHashMap<>();
        for (int number = 0; orders.getProperty(number + ".mend") != null; number++) {
            Map<String, String> order = new HashMap<>();
            for (String key : new String[] {"mend", "class", "method", "descriptor", "at", "call", "source"}) {
                order.put(key, orders.getProperty(number + "." + key, ""));
            }
            String place = order.get("class") + "." + order.get("method");
            try {
                CtClass owner = pool.get(order.get("class"));
                carryOut(method(owner, order.get("method"), order.get("descriptor")), order);
                classes.put(owner.getName(), owner);
            } catch (NotFoundException problem) {
                throw new IllegalArgumentException(
                    "mend " + order.get("mend") + ": there is no " + place + order.get("descriptor"), problem);
            } catch (CannotCompileException problem) {
                throw new IllegalArgumentException(
                    "mend " + order.get("mend") + ": " + place + ": " + problem.getReason(), problem);
            }
            done.add("mend " + order.get("mend") + " applied to " + place);
        }
        // Source that uses a private member of an enclosing class gives that class an accessor.
        for (CtClass one : classes.values().toArray(new CtClass[0])) {
            for (CtClass outer = one.getDeclaringClass(); outer != null; outer = outer.getDeclaringClass()) {
                if (outer.isModified()) {
                    classes.put(outer.getName(), outer);
                }
            }
        }
        Map<String, byte[][]> edited = new LinkedHashMap<>();
        for (CtClass one : classes.values()) {
            edited.put(one.getName(), new byte[][] {bytes(servers, one.getName()), one.toBytecode()});
        }
        return edited;
    }

    private static CtMethod method(CtClass owner, String name, String descriptor) throws NotFoundException {
        if (!descriptor.isEmpty()) {
            return owner.getMethod(name, descriptor);
        }
        CtMethod[] named = owner.getDeclaredMethods(name);
        if (named.length > 1) {
            throw new IllegalArgumentException(
                owner.getName() + "." + name + ": " + named.length + " methods have this name; a descriptor is needed");
        }
        return owner.getDeclaredMethod(name);
    }

    private static void carryOut(CtMethod method, Map<String, String> order) throws CannotCompileException {
        String source = order.get("source");
        switch (order.get("at")) {
            case "before":
                method.insertBefore(source);
                break;
            case "after":
                method.insertAfter(source);
                break;
            case "body":
                method.setBody(source);
                break;
            case "call":
                if (replaceCalls(method, order.get("call"), source) == 0) {
                    throw new CannotCompileException("it does not call " + order.get("call"));
                }
                break;
            default:
                throw new CannotCompileException("at " + order.get("at") + ": call, before, after or body is right");
        }
    }

    private static int replaceCalls(CtBehavior method, final String called, final String source)
        throws CannotCompileException {
        final int[] count = {0};
        method.instrument(new ExprEditor() {
            @Override
            public void edit(MethodCall call) throws CannotCompileException {
                if (called.equals(call.getClassName() + "." + call.getMethodName())) {
                    call.replace(source);
                    count[0]++;
                }
            }
        });
        return count[0];
    }

    private static byte[] bytes(ClassLoader servers, String name) throws Exception {
        try (InputStream in = servers.getResourceAsStream(name.replace('.', '/') + ".class")) {
            java.io.ByteArrayOutputStream out = new java.io.ByteArrayOutputStream();
            byte[] buffer = new byte[8192];
            for (int read = in.read(buffer); read > 0; read = in.read(buffer)) {
                out.write(buffer, 0, read);
            }
            return out.toByteArray();
        }
    }
}

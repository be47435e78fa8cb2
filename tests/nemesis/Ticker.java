// SPDX-License-Identifier: Apache-2.0
/**
 * A server that only writes its two clocks, twenty times a second: a log's stamp, and System.nanoTime. Both are of one
 * moment, to two milliseconds: a thread that lost its processor between the two reads them again.
 */
public class Ticker {
    public static void main(String[] args) throws Exception {
        var stamp = new java.text.SimpleDateFormat("yyyy-MM-dd HH:mm:ss.SSS");
        stamp.setTimeZone(java.util.TimeZone.getTimeZone("UTC"));
        while (true) {
            long before, wall, after;
            do {
                before = System.nanoTime();
                wall = System.currentTimeMillis();
                after = System.nanoTime();
            } while (after - before > 2_000_000);
            System.out.println(stamp.format(new java.util.Date(wall)) + " " + wall + " " + after);
            Thread.sleep(50);
        }
    }
}

/** A server that only writes what its two clocks say, twenty times a second: a log's stamp, and System.nanoTime. */
public class Ticker {
    public static void main(String[] args) throws Exception {
        var stamp = new java.text.SimpleDateFormat("yyyy-MM-dd HH:mm:ss.SSS");
        stamp.setTimeZone(java.util.TimeZone.getTimeZone("UTC"));
        while (true) {
            long wall = System.currentTimeMillis();
            System.out.println(stamp.format(new java.util.Date(wall)) + " " + wall + " " + System.nanoTime());
            Thread.sleep(50);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Field;
import java.nio.channels.FileChannel;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFileQueue;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.logfile.DefaultMappedFile;

/**
 * Three messages; then the disk fails once; two more. `queue`: it refuses the queue entry of the fourth message. `log`: it
 * takes the first 60 bytes of the fourth message. Prints whether the fourth was stored, and what a consumer gets.
 */
public final class Refused {
    public static void main(String[] args) {
        try {
            boolean log = args[1].equals("log");
            DefaultMessageStore store = Log.open(args[0], new BrokerConfig(), config -> config.setWriteWithoutMmap(log));
            Log.put(store, 3);
            Object owner = log ? store.getCommitLog() : store.getConsumeQueue("t", 0);
            Class<?> declares = log ? CommitLog.class : ConsumeQueue.class;
            Object file = ((MappedFileQueue) field(declares, "mappedFileQueue").get(owner)).getLastMappedFile();
            Field channel = field(DefaultMappedFile.class, "fileChannel");
            channel.set(file, new FailsOnce((FileChannel) channel.get(file), log ? 60 : 0));
            StringBuilder got = new StringBuilder(Log.stored(store) ? "stored, got" : "refused, got");
            Log.put(store, 2);
            for (SelectMappedBufferResult one : store.getMessage("g", "t", 0, 0, 32, null).getMessageMapedList()) {
                got.append(' ').append(MessageDecoder.decode(one.getByteBuffer()).getQueueOffset());
            }
            System.out.println(got);
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Field field(Class<?> owner, String name) throws NoSuchFieldException {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}

// SPDX-License-Identifier: Apache-2.0
import java.io.RandomAccessFile;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;

/**
 * `write`: 1,000 messages of one size; then bits of the bodies of the named ones change, and the end is as by kill -9.
 * `read`: starts again, prints the positions at which the CommitLog and the queue end, how many messages a consumer gets,
 * how many of them are right and at their offset, and how many of the named ones are found by their position.
 */
public final class Flipped {
    private static final int SIZE = 100;
    private static final int BODY = 88;

    public static void main(String[] args) {
        try {
            DefaultMessageStore store = Log.open(args[0]);
            if (args[1].equals("write")) {
                Log.put(store, 1000);
                try (RandomAccessFile file = new RandomAccessFile(args[0] + "/commitlog/00000000000000000000", "rw")) {
                    for (int n = 2; n < args.length; n++) {
                        long at = Long.parseLong(args[n]) * SIZE + BODY;
                        file.seek(at);
                        byte[] body = new byte[8];
                        file.readFully(body);
                        body[1] ^= 1;
                        body[4] ^= 2;
                        file.seek(at);
                        file.write(body);
                    }
                }
                System.out.println("written");
            } else {
                read(store, args);
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void read(DefaultMessageStore store, String[] args) throws Exception {
        long end = store.getMaxOffsetInQueue("t", 0);
        int got = 0;
        int right = 0;
        for (long next = 0; next < end;) {
            GetMessageResult result = store.getMessage("g", "t", 0, next, 32, null);
            for (int n = 0; n < result.getMessageCount(); n++) {
                MessageExt message = MessageDecoder.decode(result.getMessageBufferList().get(n), true, false);
                got++;
                right += message.getQueueOffset() == Long.parseLong(new String(message.getBody())) ? 1 : 0;
            }
            next = result.getNextBeginOffset();
        }
        int found = 0;
        for (int n = 2; n < args.length; n++) {
            found += store.lookMessageByOffset(Long.parseLong(args[n]) * SIZE, SIZE) == null ? 0 : 1;
        }
        System.out.println("end " + store.getMaxPhyOffset() + " " + end + ", got " + got + ", right " + right
            + ", found " + found);
    }
}

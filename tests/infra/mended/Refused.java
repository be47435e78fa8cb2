import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.WritableByteChannel;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFileQueue;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.logfile.DefaultMappedFile;

/** Three messages; the disk refuses the queue entry of the fourth once; two more. Prints what a consumer gets. */
public final class Refused {
    public static void main(String[] args) {
        try {
            DefaultMessageStore store = Log.open(args[0]);
            Log.put(store, 3);
            Field queue = ConsumeQueue.class.getDeclaredField("mappedFileQueue");
            Field channel = DefaultMappedFile.class.getDeclaredField("fileChannel");
            queue.setAccessible(true);
            channel.setAccessible(true);
            Object file = ((MappedFileQueue) queue.get(store.getConsumeQueue("t", 0))).getLastMappedFile();
            channel.set(file, new Once((FileChannel) channel.get(file)));
            Log.put(store, 3);
            StringBuilder got = new StringBuilder("got");
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

    /** Refuses the first write. */
    private static final class Once extends FileChannel {
        private final FileChannel real;
        private boolean refused;

        Once(FileChannel real) {
            this.real = real;
        }

        @Override
        public int write(ByteBuffer from) throws IOException {
            if (!refused) {
                refused = true;
                throw new IOException("No space left on device");
            }
            return real.write(from);
        }

        @Override
        public FileChannel position(long to) throws IOException {
            return real.position(to);
        }

        @Override
        public long position() throws IOException {
            return real.position();
        }

        @Override
        public long size() throws IOException {
            return real.size();
        }

        @Override
        public void force(boolean all) throws IOException {
            real.force(all);
        }

        @Override
        public int read(ByteBuffer into) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long read(ByteBuffer[] into, int from, int count) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long write(ByteBuffer[] from, int first, int count) {
            throw new UnsupportedOperationException();
        }

        @Override
        public FileChannel truncate(long size) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long transferTo(long from, long count, WritableByteChannel to) {
            throw new UnsupportedOperationException();
        }

        @Override
        public long transferFrom(ReadableByteChannel from, long at, long count) {
            throw new UnsupportedOperationException();
        }

        @Override
        public int read(ByteBuffer into, long at) {
            throw new UnsupportedOperationException();
        }

        @Override
        public int write(ByteBuffer from, long at) {
            throw new UnsupportedOperationException();
        }

        @Override
        public MappedByteBuffer map(MapMode mode, long at, long size) {
            throw new UnsupportedOperationException();
        }

        @Override
        public FileLock lock(long at, long size, boolean shared) {
            throw new UnsupportedOperationException();
        }

        @Override
        public FileLock tryLock(long at, long size, boolean shared) {
            throw new UnsupportedOperationException();
        }

        @Override
        protected void implCloseChannel() {
        }
    }
}

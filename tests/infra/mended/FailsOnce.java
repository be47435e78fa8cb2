// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.WritableByteChannel;

/** The channel of a file, on a disk that refuses the first write, or takes only its first bytes. */
final class FailsOnce extends FileChannel {
    private final FileChannel real;
    private final int takes;
    private boolean failed;

    FailsOnce(FileChannel real, int takes) {
        this.real = real;
        this.takes = takes;
    }

    @Override
    public int write(ByteBuffer from) throws IOException {
        if (failed) {
            return real.write(from);
        }
        failed = true;
        if (takes == 0) {
            throw new IOException("No space left on device");
        }
        ByteBuffer first = from.duplicate();
        first.limit(from.position() + takes);
        from.position(from.position() + takes);
        return real.write(first);
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

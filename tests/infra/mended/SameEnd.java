// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Field;
import java.nio.file.Path;
import java.util.Collections;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.pop.PopConsumerKVStore;
import org.apache.rocketmq.broker.pop.PopConsumerRecord;
import org.apache.rocketmq.broker.pop.PopConsumerService;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A broker with `popConsumerKVServiceEnable` changes the invisible duration of a message that was popped at 1000 ms for
 * 9000 ms: at 2000 ms, for so many milliseconds. Prints the number of its records from then on.
 */
public final class SameEnd {
    public static void main(String[] args) throws Exception {
        MessageStoreConfig stored = new MessageStoreConfig();
        stored.setStorePathRootDir(Path.of(args[0]).toString());
        BrokerConfig config = new BrokerConfig();
        config.setPopReviveSkipIfGroupAbsent(false); // no group is there
        PopConsumerService service = new PopConsumerService(
            new BrokerController(config, new NettyServerConfig(), new NettyClientConfig(), stored));
        Field field = PopConsumerService.class.getDeclaredField("popConsumerStore");
        field.setAccessible(true);
        PopConsumerKVStore records = (PopConsumerKVStore) field.get(service);
        records.start();
        records.writeRecords(Collections.singletonList(new PopConsumerRecord(1000, "g", "t", 0, 0, 9000, 5, null)));
        service.changeInvisibilityDuration(1000, 9000, 2000, Long.parseLong(args[1]), "g", "t", 0, 5, false);
        System.out.println(records.scanExpiredRecords(0, Long.MAX_VALUE, 10).size());
        records.shutdown();
        System.exit(0); // the broker has begun threads
    }
}

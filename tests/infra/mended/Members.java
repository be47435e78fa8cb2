// SPDX-License-Identifier: Apache-2.0
import io.netty.channel.embedded.EmbeddedChannel;
import java.util.Collections;
import org.apache.rocketmq.broker.client.ClientChannelInfo;
import org.apache.rocketmq.broker.client.ConsumerGroupEvent;
import org.apache.rocketmq.broker.client.ConsumerGroupInfo;
import org.apache.rocketmq.broker.client.ConsumerIdsChangeListener;
import org.apache.rocketmq.broker.client.ConsumerManager;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** A consumer sends a heartbeat, and closes its connection; a second heartbeat is handled after that. */
public final class Members {
    private final ConsumerManager manager = new ConsumerManager(new ConsumerIdsChangeListener() {
        @Override
        public void handle(ConsumerGroupEvent event, String group, Object... args) {}

        @Override
        public void shutdown() {}
    }, 120_000L);

    private void heartbeat(EmbeddedChannel channel, boolean known) {
        ClientChannelInfo client = new ClientChannelInfo(channel, "c1", LanguageCode.JAVA, 453);
        if (known) { // its subscriptions have not changed
            manager.registerConsumerWithoutSub("g", client, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, false);
        } else {
            manager.registerConsumer("g", client, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, Collections.emptySet(), false);
        }
    }

    private String members() {
        ConsumerGroupInfo group = manager.getConsumerGroupInfo("g");
        return group == null ? "no group" : String.valueOf(group.getAllClientId());
    }

    public static void main(String[] args) {
        for (boolean known : new boolean[] {false, true}) {
            Members one = new Members();
            EmbeddedChannel channel = new EmbeddedChannel();
            one.heartbeat(channel, known);
            String before = one.members();
            channel.close();
            one.manager.doChannelCloseEvent("here", channel);
            String closed = one.members();
            one.heartbeat(channel, known);
            System.out.println(before + ", " + closed + ", " + one.members());
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}

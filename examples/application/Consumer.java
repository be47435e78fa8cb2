// SPDX-License-Identifier: Apache-2.0
import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** An application's own consumer under the judges of the workload consume (docs/clients.md). */
public class Consumer {
    static synchronized void tell(Map<String, ?> event) {
        System.out.println(new Gson().toJson(event));
    }

    public static void main(String[] args) throws Exception {
        tell(Map.of("event", "hello", "pid", ProcessHandle.current().pid()));
        AtomicLong numbers = new AtomicLong();
        Scanner in = new Scanner(System.in);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer();
        while (in.hasNextLine()) {
            JsonObject command = JsonParser.parseString(in.nextLine()).getAsJsonObject();
            String name = command.get("name").getAsString();
            if (command.get("do").getAsString().equals("stop")) {
                consumer.shutdown();
                tell(Map.of("event", "stopped", "name", name));
                continue;
            }
            consumer.setConsumerGroup(command.get("group").getAsString());
            consumer.setNamesrvAddr(command.get("nameservers").getAsString());
            consumer.setInstanceName(command.get("instance").getAsString());
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(command.getAsJsonArray("topics").get(0).getAsString(), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt m : messages) {
                    long n = numbers.incrementAndGet();
                    tell(Map.of("event", "delivered", "n", n, "topic", context.getMessageQueue().getTopic(), "broker",
                            m.getBrokerName(), "queue", m.getQueueId(), "offset", m.getQueueOffset(), "attempt",
                            m.getReconsumeTimes(), "body", new String(m.getBody()), "tags", m.getTags()));
                    // The application's own work is done here.
                    tell(Map.of("event", "done", "n", n, "ok", true));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            tell(Map.of("event", "started", "name", name, "client", command.get("instance").getAsString()));
        }
        Runtime.getRuntime().halt(0); // the control program wants this process to end
    }
}

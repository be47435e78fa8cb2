// SPDX-License-Identifier: Apache-2.0
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIFactory;
import org.apache.rocketmq.proxy.common.ProxyContext;
import org.apache.rocketmq.proxy.config.Configuration;
import org.apache.rocketmq.proxy.config.ConfigurationManager;
import org.apache.rocketmq.proxy.service.route.ClusterTopicRouteService;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;

/**
 * A proxy looks for a broker while it is down, and after it is back. Prints its address or `none`, for each, and the
 * number of questions to the name servers.
 */
public final class Back {
    private static boolean up;
    private static int questions;

    public static void main(String[] args) throws Exception {
        Path settings = Path.of(args[0], "proxy.json");
        Files.writeString(settings, "{\"rocketMQClusterName\": \"c\", \"namesrvAddr\": \"127.0.0.1:9\"}");
        System.setProperty(Configuration.CONFIG_PATH_PROPERTY, settings.toString());
        ConfigurationManager.initEnv();
        ConfigurationManager.initConfig();
        ClusterTopicRouteService routes = new ClusterTopicRouteService(new Names());
        String down = address(routes);
        up = true;
        System.out.println(down + ", " + address(routes) + ", " + address(routes) + ", questions " + questions);
        System.exit(0);
    }

    private static String address(ClusterTopicRouteService routes) throws Exception {
        try {
            return routes.getBrokerAddr(ProxyContext.create(), "b");
        } catch (MQClientException problem) {
            return "none";
        }
    }

    /** Has one client, whose name servers know broker b while it is up. */
    private static final class Names extends MQClientAPIFactory {
        Names() {
            super(null, "n", 1, null, null, null);
        }

        @Override
        protected void init() {
        }

        @Override
        public MQClientAPIExt getClient() {
            return new MQClientAPIExt(new ClientConfig(), new NettyClientConfig(), null, null) {
                @Override
                public TopicRouteData getTopicRouteInfoFromNameServer(String topic, long timeoutMillis)
                    throws MQClientException {
                    questions++;
                    if (!up) {
                        throw new MQClientException(ResponseCode.TOPIC_NOT_EXIST, "no route");
                    }
                    QueueData queues = new QueueData();
                    queues.setBrokerName("b");
                    queues.setReadQueueNums(1);
                    queues.setWriteQueueNums(1);
                    queues.setPerm(6);
                    TopicRouteData route = new TopicRouteData();
                    route.setQueueDatas(List.of(queues));
                    route.setBrokerDatas(List.of(new BrokerData("c", "b", new HashMap<>(Map.of(0L, "1.2.3.4:5")))));
                    return route;
                }
            };
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.controller.elect.impl.DefaultElectPolicy;
import org.apache.rocketmq.controller.impl.event.ControllerResult;
import org.apache.rocketmq.controller.impl.event.EventMessage;
import org.apache.rocketmq.controller.impl.manager.ReplicasInfoManager;
import org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.ApplyBrokerIdRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.RegisterBrokerToControllerRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.RegisterBrokerToControllerResponseHeader;

/**
 * What the controllers tell a master that starts again before they missed it: at its registration, and when it asks for
 * an election; and a slave that does the same.
 */
public final class Again {
    private final ReplicasInfoManager manager = new ReplicasInfoManager(new ControllerConfig());

    public static void main(String[] args) {
        Again group = new Again();
        for (long id = 1; id <= 2; id++) {
            group.apply(group.manager.applyBrokerId(new ApplyBrokerIdRequestHeader("c", "b", id, "address" + id + ";1")));
        }
        System.out.println("first: " + group.elect(1));
        System.out.println("master: " + group.register(1) + ", " + group.elect(1));
        System.out.println("slave: " + group.register(2) + ", " + group.elect(2));
    }

    private String register(long id) {
        RegisterBrokerToControllerResponseHeader answer = (RegisterBrokerToControllerResponseHeader) apply(
            manager.registerBroker(new RegisterBrokerToControllerRequestHeader("c", "b", id, "address" + id),
                (cluster, name, broker) -> true)).getResponse();
        return show(answer.getMasterBrokerId(), answer.getMasterEpoch());
    }

    private String elect(long id) {
        ElectMasterResponseHeader answer = (ElectMasterResponseHeader) apply(
            manager.electMaster(new ElectMasterRequestHeader("c", "b", id),
                new DefaultElectPolicy((cluster, name, broker) -> true, null))).getResponse();
        return show(answer.getMasterBrokerId(), answer.getMasterEpoch());
    }

    private static String show(Long master, Integer epoch) {
        return master == null ? "nobody" : master + " in epoch " + epoch;
    }

    private ControllerResult<?> apply(ControllerResult<?> result) {
        for (EventMessage event : result.getEvents()) {
            manager.applyEvent(event);
        }
        return result;
    }
}

// SPDX-License-Identifier: Apache-2.0
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.controller.elect.impl.DefaultElectPolicy;
import org.apache.rocketmq.controller.impl.event.ControllerResult;
import org.apache.rocketmq.controller.impl.event.EventMessage;
import org.apache.rocketmq.controller.impl.heartbeat.BrokerIdentityInfo;
import org.apache.rocketmq.controller.impl.heartbeat.BrokerLiveInfo;
import org.apache.rocketmq.controller.impl.manager.RaftReplicasInfoManager;
import org.apache.rocketmq.controller.impl.task.CheckNotActiveBrokerRequest;
import org.apache.rocketmq.controller.impl.task.RaftBrokerHeartBeatEventRequest;
import org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.ApplyBrokerIdRequestHeader;

/**
 * The state machine of JRaft's controllers: broker 1 of 3 is the master. Prints for which groups a scan wants an election: while
 * all send heartbeats, while 3 does not, and while the master does not.
 */
public final class Scan {
    private static final long TIMEOUT_MS = 3000;

    private final RaftReplicasInfoManager manager = new RaftReplicasInfoManager(new ControllerConfig());

    public static void main(String[] args) {
        Scan scan = new Scan();
        for (long id = 1; id <= 3; id++) {
            scan.apply(scan.manager.applyBrokerId(new ApplyBrokerIdRequestHeader("c", "b", id, "address" + id + ";1")));
        }
        scan.apply(scan.manager.electMaster(new ElectMasterRequestHeader("c", "b", 1L),
            new DefaultElectPolicy((cluster, name, id) -> true, null)));
        scan.beat(1, 2, 3);
        String all = scan.elections();
        scan.expire(3);
        String oneSlave = scan.elections();
        scan.expire(1);
        System.out.println(all + ", " + oneSlave + ", " + scan.elections());
    }

    /** The group, or `nothing`: after the scan that finds the broker expired. */
    private String elections() {
        check();
        return check().contains("\"brokerName\":\"b\"") ? "b" : "nothing";
    }

    private String check() {
        return new String(manager.checkNotActiveBroker(new CheckNotActiveBrokerRequest()).getBody(), StandardCharsets.UTF_8);
    }

    private void beat(long... ids) {
        for (long id : ids) {
            beat(id, System.currentTimeMillis());
        }
    }

    private void expire(long id) {
        beat(id, System.currentTimeMillis() - 2 * TIMEOUT_MS);
    }

    private void beat(long id, long at) {
        manager.onBrokerHeartBeat(new RaftBrokerHeartBeatEventRequest(new BrokerIdentityInfo("c", "b", id),
            new BrokerLiveInfo("b", "address" + id, id, at, TIMEOUT_MS, null, 1, 0, 0, 0)));
    }

    private void apply(ControllerResult<?> result) {
        for (EventMessage event : result.getEvents()) {
            manager.applyEvent(event);
        }
    }
}

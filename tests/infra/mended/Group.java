// SPDX-License-Identifier: Apache-2.0
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.controller.elect.impl.DefaultElectPolicy;
import org.apache.rocketmq.controller.impl.event.ControllerResult;
import org.apache.rocketmq.controller.impl.event.EventMessage;
import org.apache.rocketmq.controller.impl.manager.ReplicasInfoManager;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.ElectMasterResponseBody;
import org.apache.rocketmq.remoting.protocol.body.SyncStateSet;
import org.apache.rocketmq.remoting.protocol.header.controller.AlterSyncStateSetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.GetReplicaInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.admin.CleanControllerBrokerDataRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.ApplyBrokerIdRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.GetNextBrokerIdRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.GetNextBrokerIdResponseHeader;

/** The state machine of the controllers: elections among four replicas, then the ids of three of them are cleaned. */
public final class Group {
    private static final Set<Long> ALIVE = new HashSet<>(Arrays.asList(1L, 2L, 3L, 4L));

    private final ReplicasInfoManager manager = new ReplicasInfoManager(new ControllerConfig());

    public static void main(String[] args) {
        Group group = new Group();
        for (long id = 1; id <= 4; id++) {
            group.applyFor(id);
        }
        group.elect(1L);
        group.apply(group.manager.alterSyncStateSet(new AlterSyncStateSetRequestHeader("b", 1L, 1),
            new SyncStateSet(new HashSet<>(ALIVE), 1), (cluster, name, id) -> true));
        ALIVE.removeAll(Arrays.asList(1L, 4L));
        ALIVE.remove(group.elect(null));
        group.elect(null);
        ALIVE.clear();
        group.apply(group.manager.cleanBrokerData(
            new CleanControllerBrokerDataRequestHeader("c", "b", "1;2;3", false), (cluster, name, id) -> false));
        group.applyFor(5);
        System.out.println("next id " + ((GetNextBrokerIdResponseHeader)
            group.manager.getNextBrokerId(new GetNextBrokerIdRequestHeader("c", "b")).getResponse()).getNextBrokerId());
    }

    private void applyFor(long id) {
        apply(manager.applyBrokerId(new ApplyBrokerIdRequestHeader("c", "b", id, "address" + id + ";1")));
    }

    private Long elect(Long first) {
        ControllerResult<?> result = manager.electMaster(new ElectMasterRequestHeader("c", "b", first),
            new DefaultElectPolicy((cluster, name, id) -> ALIVE.contains(id), null));
        apply(result);
        ElectMasterResponseHeader answer = (ElectMasterResponseHeader) result.getResponse();
        if (answer.getMasterBrokerId() == null) {
            System.out.println("nobody");
            return null;
        }
        Set<Long> inSync = RemotingSerializable.decode(result.getBody(), ElectMasterResponseBody.class).getSyncStateSet();
        SyncStateSet kept = RemotingSerializable.decode(
            manager.getReplicaInfo(new GetReplicaInfoRequestHeader("b")).getBody(), SyncStateSet.class);
        System.out.println(answer.getMasterBrokerId() + " gets " + new TreeSet<>(inSync) + " "
            + answer.getSyncStateSetEpoch() + ", the controllers have " + new TreeSet<>(kept.getSyncStateSet()) + " "
            + kept.getSyncStateSetEpoch());
        return answer.getMasterBrokerId();
    }

    private void apply(ControllerResult<?> result) {
        for (EventMessage event : result.getEvents()) {
            manager.applyEvent(event);
        }
    }
}

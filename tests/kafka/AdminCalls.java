import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/** What kafka-ui and AKHQ call, in turn; prints the name of each call and "ok" or its error. */
@SuppressWarnings("removal")
class AdminCalls {
    interface Call {
        KafkaFuture<?> of(Admin admin);
    }

    public static void main(String[] arguments) throws Exception {
        var topic = "ui";
        var where = new TopicPartition(topic, 0);
        var parts = List.of(where);
        var all = List.of(topic);
        var ofTopic = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var acl = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
            new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW));
        var quota = new ClientQuotaAlteration(
            new ClientQuotaEntity(Map.of("user", "a")),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1.0)));
        var setting = new AlterConfigOp(new ConfigEntry("retention.ms", "1000000"), AlterConfigOp.OpType.SET);
        var calls = new LinkedHashMap<String, Call>();
        calls.put("createTopics", a -> a.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all());
        calls.put("describeCluster", a -> {
            var found = a.describeCluster();
            return KafkaFuture.allOf(
                found.nodes(), found.controller(), found.clusterId(), found.authorizedOperations());
        });
        calls.put("listTopics", a -> a.listTopics(new ListTopicsOptions().listInternal(true)).listings());
        calls.put("describeTopics", a -> a.describeTopics(all).allTopicNames());
        calls.put("describeConfigs of a topic", a -> a.describeConfigs(List.of(ofTopic),
            new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all());
        calls.put("describeConfigs of a broker", a -> a.describeConfigs(List.of(broker(a))).all());
        calls.put("describeLogDirs", a -> a.describeLogDirs(List.of(id(a))).allDescriptions());
        for (var spec : Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
                "time", OffsetSpec.forTimestamp(1)).entrySet())
            calls.put("listOffsets " + spec.getKey(), a -> a.listOffsets(Map.of(where, spec.getValue())).all());
        calls.put("createPartitions", a -> a.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all());
        calls.put("incrementalAlterConfigs", a -> a.incrementalAlterConfigs(Map.of(ofTopic, List.of(setting))).all());
        calls.put("deleteRecords", a -> a.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(0))).all());
        calls.put("describeProducers", a -> a.describeProducers(parts).all());
        calls.put("listTransactions", a -> a.listTransactions().all());
        calls.put("alterConsumerGroupOffsets", a -> a.alterConsumerGroupOffsets("g",
            Map.of(where, new OffsetAndMetadata(0))).all());
        calls.put("listConsumerGroups", a -> a.listConsumerGroups().all());
        calls.put("describeConsumerGroups", a -> a.describeConsumerGroups(List.of("g")).all());
        calls.put("listConsumerGroupOffsets", a -> a.listConsumerGroupOffsets(
            Map.of("g", new ListConsumerGroupOffsetsSpec())).all());
        calls.put("deleteConsumerGroupOffsets", a -> a.deleteConsumerGroupOffsets("g",
            Set.of(new TopicPartition(topic, 1))).all());
        calls.put("deleteConsumerGroups", a -> a.deleteConsumerGroups(List.of("g")).all());
        calls.put("listPartitionReassignments", a -> a.listPartitionReassignments().reassignments());
        calls.put("describeFeatures", a -> a.describeFeatures().featureMetadata());
        calls.put("describeAcls", a -> a.describeAcls(AclBindingFilter.ANY).values());
        calls.put("createAcls", a -> a.createAcls(List.of(acl)).all());
        calls.put("deleteAcls", a -> a.deleteAcls(List.of(acl.toFilter())).all());
        calls.put("describeClientQuotas", a -> a.describeClientQuotas(ClientQuotaFilter.all()).entities());
        calls.put("alterClientQuotas", a -> a.alterClientQuotas(List.of(quota)).all());
        calls.put("describeUserScramCredentials", a -> a.describeUserScramCredentials().all());
        calls.put("alterPartitionReassignments", a -> a.alterPartitionReassignments(
            Map.of(where, Optional.of(new NewPartitionReassignment(List.of(id(a)))))).all());
        calls.put("alterReplicaLogDirs", a -> a.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica(topic, 0, id(a)), "/")).all());
        calls.put("electLeaders", a -> a.electLeaders(ElectionType.PREFERRED, Set.of(where)).all());
        calls.put("describeMetadataQuorum", a -> a.describeMetadataQuorum().quorumInfo());
        calls.put("abortTransaction", a -> a.abortTransaction(
            new AbortTransactionSpec(where, 1L, (short) 0, 0)).all());
        calls.put("deleteTopics", a -> a.deleteTopics(all).all());
        var config = Map.<String, Object>of(
            "bootstrap.servers", arguments[0], "retry.backoff.ms", 20);
        try (var admin = Admin.create(config)) {
            for (var call : calls.entrySet()) {
                var answer = "ok";
                try {
                    call.getValue().of(admin).get();
                } catch (ExecutionException error) {
                    answer = error.getCause().getClass().getSimpleName();
                }
                System.out.println(call.getKey() + ": " + answer);
            }
        }
    }

    static int id(Admin admin) {
        try {
            return admin.describeCluster().nodes().get().iterator().next().id();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static ConfigResource broker(Admin admin) {
        return new ConfigResource(ConfigResource.Type.BROKER, "" + id(admin));
    }
}
